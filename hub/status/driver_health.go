package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// The states of a driver that is served, as in Driver.State.
const (
	// StateConnecting: there has been no connection yet.
	StateConnecting = "Connecting"
	// StateProbing: a process answers, but is not ready or does not answer as a CSI driver.
	StateProbing = "Probing"
	// StateNameMismatch: another driver answers. It gets no call.
	StateNameMismatch = "NameMismatch"
	// StateWaitingForLease: another process has the driver's lease, or is to take it.
	StateWaitingForLease = "WaitingForLease"
	// StateReady: its volumes are attached and detached or, in mode observe, observed.
	StateReady = "Ready"
	// StateLost: the connection has ended.
	StateLost = "Lost"
	// StateDraining: the work for it ends here, and calls in flight may end within the grace.
	StateDraining = "Draining"
	// StatePaused: its mode is paused.
	StatePaused = "Paused"

	// Modes, as in Driver.Mode.
	modeActive  = "active"
	modeObserve = "observe"
	modePaused  = "paused"
)

// HealthOfDriver returns the health of a driver, as one replica sees it.
func HealthOfDriver(d Driver, replicas []string, now time.Time) Health {
	var h Health
	service := DiagnoseDriver(d, replicas, now)
	if service.Verdict == diagnosis.DriverObserved && d.Lease.Holder != "" && d.waiting() == 0 { // nothing is wrong with the other attacher
		service.Actions = service.Actions[1:]
	}
	h.add(d.serviceState(service.Verdict, replicas, now), service)
	h.addCalls(d, now)
	h.addFull(d)
	h.addQueue(d, service.Verdict != "", now)
	h.addDangling(d)
	if d.RecordedCalls > 0 && d.Mode != modeObserve { // there the checklist has it
		h.add(either(d.Mode == modeActive && d.Lease.Mine, Broken, Attention), DiagnoseCapability(d)) // nothing is attached or detached
	}
	if d.NoAttach && d.Mode == modeActive {
		h.add(Attention, DiagnoseNoAttach(d))
	}
	h.add(Attention, d.Fault)
	h.addObserved(d, now)
	h.settle()
	return h
}

func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// serviceState returns the state that follows from the answer of DiagnoseDriver.
func (d Driver) serviceState(found diagnosis.Verdict, replicas []string, now time.Time) HealthState {
	servedElsewhere := !d.Lease.Mine && slices.Contains(replicas, d.Lease.Holder)
	late := now.Sub(d.Since) >= startupTimeout && now.Sub(d.Lease.Renewed) >= startupTimeout
	switch found {
	case "":
		return Fine
	case diagnosis.DriverPaused:
		return Standby
	case diagnosis.DriverDraining, diagnosis.DriverStarting:
		return Attention
	case diagnosis.DriverObserved:
		return either(d.Lease.Holder == "" && d.Lease.Name != "", Attention, Standby)
	case diagnosis.LeaseHeld, diagnosis.LeaseHolderGone:
		return either(servedElsewhere, Standby, Attention)
	case diagnosis.LeaseFree, diagnosis.LeaseExpired, diagnosis.APIServerNotReached:
		return either(late, Broken, Attention) // it waits for a replica, not for a right
	}
	return either(d.Mode == modePaused, Standby, either(servedElsewhere, Attention, Broken)) // it cannot be called
}

// waiting returns how many VolumeAttachments wait.
func (d Driver) waiting() int {
	w := d.Work()
	return w.Queued + w.Delayed
}

// says returns a diagnosis of the driver.
func (d Driver) says(v diagnosis.Verdict, fact, detail string, actions ...string) diagnosis.Diagnosis {
	return diagnosis.New(v, "driver "+d.Name, fact, detail, actions...)
}

// addCalls adds what is the matter with the calls in flight.
func (h *Health) addCalls(d Driver, now time.Time) {
	if since := d.UnansweredSince; passed(since, now) >= max(d.Settings.slow(), d.Settings.Timeout.Duration) {
		h.add(Broken, d.says(diagnosis.DriverUnresponsive, "answers no call", either(d.Busy > 0, d.inFlight(), ""),
			lookAtDriver, "Restart the driver's controller if its log shows nothing.").From(since))
	} else if c := d.Work().OldestCall; passed(c.Since, now) >= d.Settings.slow() {
		h.add(Attention, d.says(diagnosis.CallUnanswered, c.Method+" unanswered", d.inFlight(),
			lookAtDriver+d.Settings.cancels()).From(c.Since))
	}
}

// addQueue adds what is the matter with the volumes. unserved says that this replica does not work for the driver.
func (h *Health) addQueue(d Driver, unserved bool, now time.Time) {
	work := d.Work()
	late := passed(work.OldestSince, now) >= d.Settings.slow()
	list := "Run csi-attach-hub volumes --driver " + d.Name + " to list them"
	n := d.waiting()
	if unserved {
		n -= work.Stuck
	}
	waits := d.says(diagnosis.Queued, plural(n, "volume waits", "volumes wait, the oldest"), "", list+".")
	if !unserved || work.Stuck == 0 { // else the oldest is stuck
		waits.Since = work.OldestSince
	}
	switch {
	case unserved && n > 0:
		// Another attacher may be about to do what it must, and a user may have paused the driver: only a driver that
		// nobody works for needs attention at once.
		h.add(either(d.Mode == modeObserve && !late || d.Mode == modePaused, Standby, Attention), waits)
	case unserved:
	case work.Failing > 0:
		h.add(Attention, d.says(diagnosis.Retrying, plural(work.Failing, "volume failing", "volumes failing, the oldest"),
			d.lastFailure(work.FailingSince), list+". The hub keeps retrying.").From(work.FailingSince))
	case work.Queued > d.WaitingForCapacity && late:
		waits.Actions = []string{fmt.Sprintf("Look at how long the driver's calls take (%s), and raise workers if the driver can do more at once.", d.inFlight())}
		h.add(Attention, waits)
	}
	if work.Stuck > 0 {
		h.add(Attention, d.says(diagnosis.Stuck, plural(work.Stuck, "volume stuck", "volumes stuck, the oldest"), d.lastFailure(work.StuckSince),
			list+", and csi-attach-hub explain NAME for the cause of one.").From(work.StuckSince))
	}
}

func (d Driver) inFlight() string {
	return fmt.Sprintf("%d of %d calls in flight", d.Busy, d.Workers)
}

// passed returns the time since t, 0 for the zero time.
func passed(t, now time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return now.Sub(t)
}

// lastFailure returns the text of the last failed try since a time.
func (d Driver) lastFailure(since time.Time) string {
	if len(d.Failures) == 0 || d.Failures[0].Time.Before(since) {
		return ""
	}
	cause, text := diagnosis.Parse(d.Failures[0].Text, d.Failures[0].Cause.Code)
	return diagnosis.LastErrorPrefix + strings.TrimPrefix(diagnosis.Because(cause.Code, text), ": ")
}

// addObserved adds what was seen of other attachers.
func (h *Health) addObserved(d Driver, now time.Time) {
	if w := d.ForeignWriter; w.Manager != "" && now.Sub(w.Time) < lately {
		h.add(Attention, d.says(diagnosis.ForeignWriter, "something else writes its VolumeAttachments", sanitize(w.Manager+", last VolumeAttachment "+w.VolumeAttachment+" "+diagnosis.Ago(w.Time, now), shortText),
			"If that is an attacher, end it, or set the driver's mode to observe."))
	}
	if o := d.Observed; o != nil && o.Differs+o.WouldHaveFailed > 0 {
		h.add(Attention, d.says(diagnosis.DriverDisagrees, plural(o.Differs+o.WouldHaveFailed, "observed decision disagrees", "observed decisions disagree"), "",
			"Look at the disagreements before the driver is handed over."))
	}
	var open []string
	for _, c := range d.Checklist {
		if !c.OK {
			open = append(open, sanitize(diagnosis.Because(c.Name, c.Text), shortText))
		}
	}
	if len(open) > 0 {
		h.add(Attention, d.says(diagnosis.ChecklistOpen, fmt.Sprintf("%d of %d checks open", len(open), len(d.Checklist)), strings.Join(open, "; "),
			"Do what the open checks say before the driver is handed over."))
	}
}
