package hub

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// What an operation waits for, besides what status.Wait names.
const (
	waitForLease      = "the lease of the driver"
	waitForHub        = "a hub that works for the driver"
	waitForConnection = "the driver's connection"
	waitForNextTry    = "the next try"
)

// fillSteps fills in what has happened since the operation of a VolumeAttachment was asked for. If nothing is to be done,
// these are the steps of its attach, while they are kept.
func (h *Hub) fillSteps(a *status.Attachment, va *storagev1.VolumeAttachment, now time.Time) {
	h.mu.Lock()
	m := h.managers[va.Spec.Attacher]
	h.mu.Unlock()
	if m != nil {
		if s := m.get(); s.leader != nil {
			a.Steps = s.leader.stepsOf(a, s, va, now)
			return
		}
	}
	if a.Operation != "" && !a.Since.IsZero() { // this process does not work for the driver
		a.Steps = []status.Step{{Kind: status.StepCreated, Time: a.Since}, {Kind: status.StepWaited, What: roleWait(a.Waiting), Time: a.Since}}
	}
}

// stepsOf returns the steps of the operation that a view of a VolumeAttachment shows.
func (l *leader) stepsOf(a *status.Attachment, s driverState, va *storagev1.VolumeAttachment, now time.Time) []status.Step {
	if a.Operation == "" {
		if o := l.recent.of(va.Name, va.UID); o != nil {
			return o.steps()
		}
		return nil
	}
	key := volume.ClaimKey(va.Name)
	kept, waits := l.table.History(key)
	var steps []status.Step
	if o, _ := kept.(*operation); o != nil && o.uid == va.UID && o.kind == a.Operation {
		steps = o.steps()
		if idle := o.idleSince(); !idle.IsZero() {
			w := status.Step{Kind: status.StepWaited, What: waitForNextTry, Time: idle}
			if len(waits) > 0 {
				w.Until = waits[0].From
			}
			steps = append(steps, w)
		}
	} else {
		asked := a.Since
		if a.Operation == status.Attach && l.recent.of(va.Name, va.UID) != nil {
			asked = time.Time{}
		}
		e, _ := l.table.Look(key)
		steps = l.beginning(a.Operation, asked, e.Since)
	}
	for _, w := range l.waitSteps(waits, s, va.Spec.NodeName) {
		until := w.Until
		if until.IsZero() {
			until = now
		}
		if until.Sub(w.Time) >= shortestWait {
			steps = append(steps, w)
		}
	}
	return steps
}

// beginning returns the steps of an operation before its first run. asked is when the object asked for it, zero if that is
// not known; seen is when an entry was added for it, zero if there is none yet.
func (l *leader) beginning(kind status.Operation, asked, seen time.Time) []status.Step {
	var steps []status.Step
	wait := func(what string, from, until time.Time) time.Time {
		if until.Sub(from) < time.Second { // asked has seconds
			return from
		}
		steps = append(steps, status.Step{Kind: status.StepWaited, What: what, Time: from, Until: until})
		return until
	}
	if !asked.IsZero() {
		steps = append(steps, status.Step{Kind: status.StepCreated, Time: asked})
		role := waitForLease
		if l.hub.options.Leases == nil {
			role = waitForHub
		}
		from := wait(role, asked, l.began)
		if seen.Sub(from) >= time.Second && !seen.Before(l.began) {
			wait(waitForConnection, from, seen)
		}
	}
	if !seen.IsZero() {
		s := status.Step{Kind: status.StepSeen, Time: seen}
		if kind == status.Drift {
			s.What = "ListVolumes does not report the volume on the node"
		}
		steps = append(steps, s)
	}
	return steps
}

// waitSteps returns the waits of an entry for a node as steps. What waits for a worker while the driver cannot be called waits for
// its connection.
func (l *leader) waitSteps(waits []volume.Waited, s driverState, node string) []status.Step {
	var steps []status.Step
	for _, w := range waits {
		add := func(what string, from, until time.Time) {
			steps = append(steps, status.Step{Kind: status.StepWaited, What: what, Time: from, Until: until})
		}
		what := l.waitOf(w.Wait, node).String()
		switch {
		case w.Wait.Kind != volume.WaitWorker:
		case s.State != Ready && w.Until.IsZero():
			what = roleWait(s.wait())
		case s.up && s.upSince.After(w.From) && (w.Until.IsZero() || !s.upSince.After(w.Until)):
			add(waitForConnection, w.From, s.upSince)
			w.From = s.upSince
		}
		add(what, w.From, w.Until)
	}
	return steps
}

// roleWait returns what is waited for while this process does no work for the driver. Attachment.WaitsFor has the reason.
func roleWait(w status.Wait) string {
	switch State(w.DriverState) {
	case Connecting, Probing, NameMismatch, Lost:
		return waitForConnection
	case WaitingForLease, Draining:
		return waitForLease
	case Paused:
		return "the end of the driver's pause"
	case Ready:
		return "the attacher that is observed"
	}
	return waitForHub
}
