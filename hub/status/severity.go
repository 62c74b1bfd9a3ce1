package status

import (
	"fmt"
	"time"
)

// severity is how urgently a person has to look at a driver. The worst is the first.
type severity int

const (
	broken    severity = iota // its volumes wait, or would wait
	attention                 // something is wrong, and its volumes are attached all the same
	standby                   // another replica works for it, or its mode is paused
	fine
)

// severities are the names of all, as the page shows them.
var severities = [...]string{broken: "broken", attention: "attention", standby: "standby", fine: "fine"}

func (s severity) String() string { return severities[s] }

// States and modes that this package compares, as in Driver.State and Driver.Mode. Other states
// decide nothing.
const (
	stateConnecting   = "Connecting"
	stateProbing      = "Probing"
	stateNameMismatch = "NameMismatch"
	stateWaiting      = "WaitingForLease"
	stateDraining     = "Draining"
	statePaused       = "Paused"

	modeActive  = "active"
	modeObserve = "observe"
	modePaused  = "paused"
)

const (
	// startupTimeout is how long a driver may be without a connection, or its lease without a
	// holder, before it needs attention.
	startupTimeout = 30 * time.Second
	// slow is the age from which queued work and operations in flight need attention.
	slow = time.Minute
	// lately is how long a write of another attacher counts.
	lately = time.Hour
)

// judged is a driver with its severity and the reasons, the worst first.
type judged struct {
	Driver
	Severity severity
	Notes    []string
	Spark    spark
}

// judge returns a driver with its severity. members are the identities of the hub's replicas;
// oldestCall is when the oldest operation in flight became due, zero for none.
func judge(d Driver, h history, members map[string]bool, oldestCall, now time.Time) judged {
	j := judged{Driver: d, Severity: fine, Spark: newSpark(&h)}
	j.judgeService(members, now)
	j.judgeWork(now)
	if !oldestCall.IsZero() && now.Sub(oldestCall) >= slow { // a driver that hangs causes no failure for long
		j.note(attention, "calls take long, the oldest is wanted for %s", age(now, oldestCall))
	}
	j.judgeObserved()
	if j.Severity == fine && (d.Mode == modePaused || d.State == stateWaiting) {
		j.Severity = standby
	}
	return j
}

// Why returns the driver's own reason, "" if the lease's holder beside it says the same.
func (j judged) Why() string {
	if j.Severity == standby && j.Lease.Holder != "" {
		return ""
	}
	return j.Reason
}

// Last returns the latest failed try of a driver that needs attention, else zero.
func (j judged) Last() Failure {
	if j.Severity > attention || len(j.Failures) == 0 {
		return Failure{}
	}
	return j.Failures[0]
}

// note adds a reason.
func (j *judged) note(s severity, format string, args ...any) {
	j.Severity = min(j.Severity, s)
	j.Notes = append(j.Notes, fmt.Sprintf(format, args...))
}

// judgeWork looks at the queues of the driver.
func (j *judged) judgeWork(now time.Time) {
	work, oldest := j.Work(), 0.0
	for _, l := range j.Lanes {
		if l.Queued > 0 {
			oldest = max(oldest, l.OldestSeconds)
		}
	}
	if work.Stuck > 0 {
		j.note(broken, "%s stuck", count(work.Stuck))
	}
	if work.Delayed > 0 {
		j.note(attention, "%s to be tried again", count(work.Delayed))
	}
	if age := time.Duration(oldest * float64(time.Second)); age >= slow {
		j.note(attention, "%s wait, the oldest for %s", count(work.Queued), duration(age))
	}
	if j.UnownedCount > 0 {
		j.note(attention, "%s left attached", count(j.UnownedCount))
	}
	if w := j.ForeignWriter; w.Manager != "" && now.Sub(w.Time) < lately {
		j.note(attention, "another attacher writes: %s", sanitize(w.Manager, shortText))
	}
}

// judgeService looks at connection, mode and lease of the driver.
func (j *judged) judgeService(members map[string]bool, now time.Time) {
	settled := now.Sub(j.Since) >= startupTimeout
	switch {
	case j.State == stateDraining:
		j.note(attention, "its work is being ended")
	case !j.Up && j.Mode == modePaused:
		j.note(attention, "not connected")
	case !j.Up && j.State == stateConnecting && j.ConnectionError.Text == "" && !settled:
		j.note(attention, "not connected yet")
	case !j.Up:
		j.note(broken, "cannot be called")
	case j.State == statePaused && j.Mode == modeActive:
		j.note(broken, "paused by the hub")
	case j.State != stateWaiting:
	case j.Lease.Holder == "" && settled:
		j.note(attention, "nobody holds its lease")
	case j.Lease.Holder != "" && !members[j.Lease.Holder]:
		j.note(attention, "its lease is held by another attacher")
	}
}

// judgeObserved looks at what mode observe has found.
func (j *judged) judgeObserved() {
	if o := j.Observed; o != nil && o.Differs+o.WouldHaveFailed > 0 {
		j.note(attention, "%s", plural(o.Differs+o.WouldHaveFailed, "decision disagrees", "decisions disagree"))
	}
	open := 0
	for _, c := range j.Checklist {
		if !c.OK {
			open++
		}
	}
	if open > 0 {
		j.note(attention, "%d of %d checks open", open, len(j.Checklist))
	}
}

// oldestCalls returns, by driver, when the oldest operation in flight became due.
func oldestCalls(all []Attachment) map[string]time.Time {
	longest := map[string]time.Time{}
	for _, a := range all {
		if a.State != Attaching && a.State != Detaching || a.Since.IsZero() {
			continue
		}
		if t, ok := longest[a.Driver]; !ok || a.Since.Before(t) {
			longest[a.Driver] = a.Since
		}
	}
	return longest
}

// membersOf returns the identities of the replicas.
func membersOf(all []Replica) map[string]bool {
	members := make(map[string]bool, len(all))
	for _, r := range all {
		members[r.Identity] = true
	}
	return members
}
