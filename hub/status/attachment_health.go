package status

import "time"

// unservedTooLong is how long an operation may be due for a driver that is not served here before its
// VolumeAttachment counts as broken: the default of stuckAfter.
const unservedTooLong = 15 * time.Minute

// healthOf returns the state of a VolumeAttachment's health, and since when.
func (a Attachment) healthOf(now time.Time) (HealthState, time.Time) {
	late := func(after time.Duration) bool { return !a.Since.IsZero() && now.Sub(a.Since) >= after }
	switch a.State {
	case Stuck:
		return Broken, a.Since
	case Failing:
		return Attention, a.Since
	case Waiting, Attaching, Detaching:
		if a.Tries > 0 || late(slow) || a.waitsForBrokenDriver() {
			return Attention, a.Since
		}
	case Unclaimed:
		switch {
		case a.Operation == "":
		case late(unservedTooLong):
			return Broken, a.Since
		case late(slow):
			return Attention, a.Since
		}
	}
	return Fine, time.Time{}
}

// waitsForBrokenDriver reports whether nothing is done for the driver until somebody acts, or the driver is back.
func (a Attachment) waitsForBrokenDriver() bool {
	switch a.Waiting.DriverState {
	case stateLost, stateProbing, stateNameMismatch, statePaused:
		return a.Waiting.Kind == WaitForDriver
	}
	return false
}

// HealthOfAttachment returns the health of a VolumeAttachment. Its reasons are those of Diagnose.
func HealthOfAttachment(in DiagnosisInput) Health {
	var h Health
	h.State, h.Since = in.Attachment.healthOf(in.Now)
	if h.State == Fine {
		return h
	}
	for _, d := range Diagnose(in) {
		h.add(h.State, d)
	}
	return h
}

// neededBy returns the Pods that use the volume, or its claim if they are not known. Nobody needs a detach.
func (a Attachment) neededBy() []string {
	if a.Operation == Detach {
		return nil
	}
	if len(a.Pods) == 0 && a.Claim != "" {
		return []string{"claim " + a.Claim}
	}
	return a.Pods
}
