package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// States and modes that this package compares, as in Driver.State and Driver.Mode. Other states
// decide nothing.
const (
	stateReady        = "Ready"
	stateConnecting   = "Connecting"
	stateProbing      = "Probing"
	stateLost         = "Lost"
	stateNameMismatch = "NameMismatch"
	stateWaiting      = "WaitingForLease"
	stateDraining     = "Draining"
	statePaused       = "Paused"

	modeActive  = "active"
	modeObserve = "observe"
	modePaused  = "paused"
)

// HealthOfDriver returns the health of a driver, as one replica sees it.
func HealthOfDriver(d Driver, replicas []Replica, now time.Time) Health {
	var h Health
	service := DiagnoseDriver(d, LeaseRecord{Lease: d.Lease}, replicas, now)
	state := d.brokenIfStuck(d.serviceState(service, replicas, now))
	h.add(state, service)
	h.addCalls(d, now)
	h.addFull(d)
	h.addQueue(d, state, service.Verdict != "", now)
	h.addUnowned(d)
	switch wrong := DiagnoseCapability(d); {
	case d.Mode == modeObserve: // there the checklist has it
	case d.Mode == modeActive && d.Lease.Mine: // nothing is attached or detached
		h.add(Broken, wrong)
	default:
		h.add(Attention, wrong)
	}
	if d.Mode == modeActive {
		h.add(Attention, DiagnoseNoAttach(d))
	}
	h.addObserved(d, now)
	h.settle(Fine)
	return h
}

// brokenIfStuck returns the state of a reason. While volumes are stuck, what may have caused that is as bad, and
// comes first.
func (d Driver) brokenIfStuck(s HealthState) HealthState {
	if d.Stuck() > 0 {
		return Broken
	}
	return s
}

// serviceState returns the state that follows from the answer of DiagnoseDriver.
func (d Driver) serviceState(found diagnosis.Diagnosis, replicas []Replica, now time.Time) HealthState {
	members := membersOf(replicas)
	servedElsewhere := !d.Lease.Mine && members[d.Lease.Holder]
	late := now.Sub(d.Since) >= startupTimeout && now.Sub(d.Lease.Renewed) >= startupTimeout
	switch found.Verdict {
	case "":
		return Fine
	case diagnosis.DriverDraining, diagnosis.DriverStarting:
		return Attention
	case diagnosis.DriverPaused:
		if d.Mode == modePaused {
			return Standby
		}
		return Broken
	case diagnosis.DriverObserved:
		if d.Lease.Holder == "" && d.Lease.Name != "" && late {
			return Attention
		}
		return Standby
	case diagnosis.LeaseHeld:
		if servedElsewhere {
			return Standby
		}
		return Attention
	case diagnosis.LeaseFree, diagnosis.LeaseExpired, diagnosis.LeaseMissing, diagnosis.WriteForbidden:
		switch waits := found.Verdict == diagnosis.LeaseFree || found.Verdict == diagnosis.LeaseExpired; { // for a replica, not for a right
		case waits && !late:
			return Standby
		case d.waiting() > 0:
			return Broken
		}
		return Attention
	}
	if servedElsewhere || d.Mode == modePaused { // it cannot be called, and this replica does not have to
		return Attention
	}
	return Broken
}

// waiting returns how many VolumeAttachments wait.
func (d Driver) waiting() int {
	w := d.Work()
	return w.Queued + w.Delayed
}

// addCalls adds what is the matter with the calls in flight.
func (h *Health) addCalls(d Driver, now time.Time) {
	if since := d.UnansweredSince; passed(since, now) >= max(d.Settings.slow(), time.Duration(d.Settings.Timeout)) {
		h.add(Broken, diagnosis.Diagnosis{
			Verdict: diagnosis.DriverUnresponsive, Object: d.ref(), Fact: "answers no call", Since: since, Detail: cmp.Or(d.neededBy(), d.inFlight()),
			Actions: []string{
				"Look at the log of the driver's controller and at the storage system: the driver takes calls and does not answer them.",
				"Restart the driver's controller if its log shows nothing.",
			},
		})
	}
	if c := d.Work().OldestCall; passed(c.Since, now) >= d.Settings.slow() {
		h.add(d.brokenIfStuck(Attention), diagnosis.Diagnosis{
			Verdict: diagnosis.CallUnanswered, Object: d.ref(), Fact: c.Method + " unanswered", Since: c.Since, Detail: d.inFlight(),
			Actions: []string{c.action(d.Settings)},
		})
	}
}

// addQueue adds what is the matter with the work that waits. service is the state of the driver itself; unserved
// says that this replica does not work for it.
func (h *Health) addQueue(d Driver, service HealthState, unserved bool, now time.Time) {
	work := d.Work()
	add := func(s HealthState, verdict diagnosis.Verdict, since time.Time, fact, detail string, actions ...string) {
		h.add(s, diagnosis.Diagnosis{Verdict: verdict, Object: d.ref(), Fact: fact, Since: since, Detail: detail, Actions: actions})
	}
	late := passed(work.OldestSince, now) >= d.Settings.slow()
	waits := plural(d.waiting(), "volume waits", "volumes wait, the oldest")
	switch {
	case unserved && d.waiting() > work.Stuck:
		// Another attacher may be about to do what it has to: only a driver that nobody works for needs
		// attention at once.
		state := Attention
		if service == Broken {
			state = Broken
		} else if d.Mode == modeObserve && !late {
			state = Standby
		}
		add(state, diagnosis.Queued, work.OldestSince, waits, d.neededBy())
	case unserved:
	case work.Failing > 0:
		add(d.brokenIfStuck(Attention), diagnosis.Retrying, work.FailingSince, plural(work.Failing, "volume failing", "volumes failing, the oldest"), d.lastFailure(),
			"Run csi-attach-hub volumes --driver "+d.Name+" to list them. The hub keeps retrying.")
	case work.Queued > d.WaitingForCapacity && late:
		add(Attention, diagnosis.Queued, work.OldestSince, waits, d.neededBy(),
			fmt.Sprintf("Look at how long the driver's calls take (%s), and raise workers if the driver can do more at once.", d.inFlight()))
	}
	if work.Stuck > 0 {
		add(Broken, diagnosis.Stuck, work.StuckSince, plural(work.Stuck, "volume stuck", "volumes stuck, the oldest"), d.neededBy(),
			"Run csi-attach-hub volumes --driver "+d.Name+" to list them, and csi-attach-hub explain NAME for the cause of one.")
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

func (d Driver) ref() string { return "driver " + d.Name }

// neededBy names who waits.
func (d Driver) neededBy() string {
	if len(d.Waiters) == 0 {
		return ""
	}
	return "needed by " + strings.Join(d.Waiters, ", ")
}

// lastFailure returns the text of the last failed try.
func (d Driver) lastFailure() string {
	if len(d.Failures) == 0 {
		return ""
	}
	cause, text := diagnosis.Parse(d.Failures[0].Text, d.Failures[0].Cause.Code)
	if cause.Code == "" {
		return text
	}
	return diagnosis.Because(cause.Code, text)
}

// addObserved adds what was seen of other attachers.
func (h *Health) addObserved(d Driver, now time.Time) {
	add := func(verdict diagnosis.Verdict, fact, detail, action string) {
		h.add(Attention, diagnosis.Diagnosis{Verdict: verdict, Object: d.ref(), Fact: fact, Detail: detail, Actions: []string{action}})
	}
	if w := d.ForeignWriter; w.Manager != "" && now.Sub(w.Time) < lately {
		add(diagnosis.ForeignWriter, "another attacher writes its VolumeAttachments", sanitize(w.Manager, shortText),
			"End that attacher, or set the driver's mode to observe.")
	}
	if o := d.Observed; o != nil && o.Differs+o.WouldHaveFailed > 0 {
		add(diagnosis.DriverDisagrees, plural(o.Differs+o.WouldHaveFailed, "observed decision disagrees", "observed decisions disagree"), "",
			"Look at the disagreements before the driver is handed over.")
	}
	var open []string
	for _, c := range d.Checklist {
		if !c.OK {
			open = append(open, sanitize(diagnosis.Because(c.Name, c.Text), shortText))
		}
	}
	if len(open) > 0 {
		add(diagnosis.ChecklistOpen, fmt.Sprintf("%d of %d checks open", len(open), len(d.Checklist)), strings.Join(open, "; "), "Do what the open checks say before the driver is handed over.")
	}
}

// action says what to do about a call that takes long.
func (c Call) action(s Settings) string {
	action := "Look at the log of the driver's controller and at the storage system."
	if s.Timeout > 0 {
		action += fmt.Sprintf(" The hub cancels a call after %s (timeout) and tries again.", s.Timeout)
	}
	return action
}

// membersOf returns the identities of the replicas.
func membersOf(all []Replica) map[string]bool {
	members := make(map[string]bool, len(all))
	for _, r := range all {
		members[r.Identity] = true
	}
	return members
}
