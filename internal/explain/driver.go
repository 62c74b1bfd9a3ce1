package explain

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// mostLeft is how many volumes that were left attached a report about a driver names.
	mostLeft = 5
	// mostCalls is how many calls in flight it names.
	mostCalls = 5
)

// SubjectReport is the answer for a driver or a node.
type SubjectReport struct {
	Age               // of Report.Result
	Reasons []Reason  `json:"reasons"` // for Report.Result, the worst first
	Notes   []Finding `json:"notes,omitempty"`
	Facts   []string  `json:"facts"` // what else is known, as sentences
	// Checks are the conditions for serving the driver, as the hub sees them. None if the question is about a node.
	Checks        []status.Check `json:"checks,omitempty"`
	checksUnknown bool           // they could not be read
}

// Reason is a finding with the health that it alone would cause.
type Reason struct {
	Health status.HealthState `json:"health"`
	Finding
}

func (s *SubjectReport) add(health status.HealthState, f Finding) {
	s.Reasons = append(s.Reasons, Reason{health, f})
}

func (s *SubjectReport) say(format string, args ...any) {
	s.Facts = append(s.Facts, fmt.Sprintf(format, args...))
}

// explainDriver answers for a driver. worst is the health of its worst VolumeAttachment. For a driver that the hub
// serves, result and reasons are those of the hub: all views show the same.
func explainDriver(f *Facts, worst status.HealthState) (*SubjectReport, Result) {
	w := &walk{Facts: f, Volume: f.Subject}
	s := &SubjectReport{Reasons: []Reason{}, Facts: []string{}}
	if f.Hub.Err == nil && w.Served != nil {
		h := w.Served.Health
		for _, r := range h.Reasons {
			reason := f.finding(r.Diagnosis)
			reason.Next = strings.Join(r.Actions, " ") // the reason before says what to do
			w.cure(&reason)
			s.add(r.State, reason)
		}
		s.Age, s.Checks = ageOf(h.Since, f.Now), items(f.Checks)
		s.checksUnknown = f.Checks.Err() != nil
		w.aboutServed(s)
		w.aboutObjects(s)
		return s, Result(h.State)
	}
	w.service()
	for _, later := range w.lastResorts {
		w.stop(later)
	}
	if w.report.Stop != nil {
		w.cure(w.report.Stop)
	}
	s.Facts, s.Notes = append(s.Facts, w.report.Path...), w.report.Notes
	w.aboutObjects(s)
	if w.report.Stop == nil {
		if f.Hub.Err != nil {
			return s, NotKnown
		}
		return s, Result(worst)
	}
	health := status.Attention
	if lease, held := w.lease(); held && lease.Holder != "" && len(f.Hub.View.Conflicts(w.Driver)) == 0 {
		health = status.Standby // another attacher works for it
	}
	if worst.Compare(health) < 0 {
		health = worst
	}
	s.Reasons = []Reason{{health, *w.report.Stop}}
	s.Age = w.report.Stop.Age
	return s, Result(health)
}

// aboutServed says what the hub knows of the driver beside its health.
func (w *walk) aboutServed(s *SubjectReport) {
	d := w.Served
	if d.Up {
		s.say("%s", strings.Join(nonEmpty("answers at "+d.Endpoint, prefixed("version ", d.Version), prefixed("configured by ", d.Source)), ", "))
	}
	if d.Lease.Mine {
		if d.Up {
			s.say("%s works for the driver", cmp.Or(d.Leader, "the hub"))
		} else {
			s.say("%s holds the driver's lease and waits for the driver", cmp.Or(d.Leader, "the hub"))
		}
	}
	for _, l := range d.Lanes {
		if l.Queued+l.Delayed+l.Running+l.Stuck == 0 {
			continue
		}
		text := fmt.Sprintf("%s: %d queued, %d waiting for a retry, %d running, %d stuck", l.Operation, l.Queued, l.Delayed, l.Running, l.Stuck)
		if !l.OldestSince.IsZero() {
			text += "; the oldest waits for " + diagnosis.Length(w.Now.Sub(l.OldestSince))
		}
		if c := l.OldestCall; !c.Since.IsZero() {
			text += fmt.Sprintf("; the oldest call has been running for %s", diagnosis.Length(w.Now.Sub(c.Since)))
		}
		s.say("%s", text)
	}
	for _, a := range w.Calls[:min(mostCalls, len(w.Calls))] {
		s.say("%s for VolumeAttachment %s to node %s has been running for %s", a.Call.Method, a.Name, a.Node, diagnosis.Length(w.Now.Sub(a.Call.Since)))
	}
	if more := len(w.Calls) - mostCalls; more > 0 {
		s.say("more calls in flight: %d", more)
	}
	if len(d.Waiters) > 0 {
		s.say("needed by %s", strings.Join(d.Waiters, ", "))
	}
	for _, c := range w.Hub.View.Conflicts(d.Name) {
		s.Notes = append(s.Notes, conflictNote("driver "+d.Name, c))
	}
	for _, u := range d.Unowned[:min(mostLeft, len(d.Unowned))] {
		s.Notes = append(s.Notes, w.leftFinding("driver "+d.Name, "", d.Name, u))
	}
	if more := d.UnownedCount - mostLeft; more > 0 {
		s.say("more volumes left attached: %d", more)
	}
}

// aboutObjects says what only the objects of Kubernetes show: the CSIDriver, the lease, other attachers.
func (w *walk) aboutObjects(s *SubjectReport) {
	switch {
	case w.CSIDriver.Missing():
		s.say("CSIDriver %s does not exist: the driver counts as one with attachRequired: true", w.Driver)
	case w.noAttach():
		s.say("CSIDriver %s has attachRequired: false: volumes of the driver need no attach", w.Driver)
	case w.CSIDriver.Value() != nil:
		s.say("CSIDriver %s exists, attachRequired is true", w.Driver)
	}
	for _, object := range items(w.Leases.All) {
		l := w.record(&object)
		served := w.Served != nil && w.Served.Lease.Namespace == l.Namespace
		switch {
		case l.Holder == "" && !l.Expired():
			s.say("%s has no holder", leaseRef(l))
		case w.Served == nil || served || l.Expired() || w.isReplica(l.Holder):
			s.say("%s is %s", leaseRef(l), l.Held(w.Now))
		case w.Served.Mode == "observe":
			s.say("%s is %s: another attacher works for the driver", leaseRef(l), l.Held(w.Now))
		default:
			s.Notes = append(s.Notes, w.lasting(diagnosis.LeaseHeld, leaseRef(l), "another attacher works for the driver with a lease in another namespace", l.Since, l.Held(w.Now),
				"End that attacher, or let both use the same lease (lease.namespace in drivers.yaml)."))
		}
	}
	if own := w.Served; own != nil && own.Lease.Name != "" && w.Leases.All.Value() != nil {
		if _, found := w.lease(); !found {
			s.say("Lease %s/%s does not exist", own.Lease.Namespace, own.Lease.Name)
		}
	}
}

func nonEmpty(texts ...string) []string {
	var some []string
	for _, t := range texts {
		if t != "" {
			some = append(some, t)
		}
	}
	return some
}

// prefixed returns a text with a prefix, "" for "".
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
