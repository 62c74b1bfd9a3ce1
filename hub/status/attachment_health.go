package status

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// unservedTooLong is how long an operation may be due for a driver that is not served here before its
// VolumeAttachment counts as broken: the default of stuckAfter.
const unservedTooLong = 15 * time.Minute

// HealthOfAttachment returns the health of a VolumeAttachment. Its reasons are those of Diagnose.
func HealthOfAttachment(in DiagnosisInput) Health {
	a, due := in.Attachment, passed(in.Attachment.Since, in.Now)
	h := Health{State: Attention, Since: a.Since}
	switch {
	case a.Fault.Verdict != "":
		h.Since = cmp.Or(a.Fault.Since, a.Fault.Last)
	case a.Waiting.DriverState == StatePaused: // by a user
		h.State = Standby
	case a.State == Stuck, a.State == Unserved && a.Operation != "" && due >= unservedTooLong:
		h.State = Broken
	case a.State == Idle && in.Driver != nil && in.Driver.NoAttach && in.Driver.Mode == modeActive:
	case a.State == Failing, a.State == Unserved && a.Operation != "" && due >= slow:
	case (a.State == Waiting || a.State == Attaching || a.State == Detaching) && (due >= slow || a.Waiting.Kind == WaitForCapacity ||
		// Nothing is done until somebody acts, or the driver is back.
		a.Waiting.Kind == WaitForDriver && slices.Contains([]string{StateConnecting, StateLost, StateProbing, StateNameMismatch}, a.Waiting.DriverState)):
	default:
		return Health{State: Fine}
	}
	for _, d := range Diagnose(in) {
		h.add(h.State, d)
	}
	return h
}

// troubleKey returns a key that is equal for VolumeAttachments in the same state for the same reason. Names of
// its own objects in the texts make no difference, and ages are in no key.
func (a Attachment) troubleKey() string {
	var why diagnosis.Diagnosis
	if len(a.Health.Reasons) > 0 {
		why = a.Health.Reasons[0].Diagnosis
	}
	key := []string{string(a.Health.State), string(a.State), a.Driver, string(a.Operation), string(why.Verdict)}
	switch why.Verdict {
	case diagnosis.NodeFull:
		key = append(key, a.Node)
	case "", diagnosis.Queued:
		key = append(key, string(a.Waiting.Kind))
	default:
		text := why.Fact + "\x00" + why.Detail
		for _, name := range []string{a.Name, a.PersistentVolume, a.VolumeHandle, a.Node, a.Claim} {
			if name != "" {
				text = strings.ReplaceAll(text, name, "\x00")
			}
		}
		key = append(key, a.Cause().Code, text)
	}
	return strings.Join(key, "\x00")
}
