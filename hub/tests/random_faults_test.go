package tests

import (
	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// failCalls makes the next calls of one volume fail, before or after their effect.
func (t *trial) failCalls() {
	all := []codes.Code{codes.Internal, codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.FailedPrecondition, codes.ResourceExhausted}
	fault := fakecsi.Fault{Volume: t.volumes[t.random.IntN(len(t.volumes))].name, Code: all[t.random.IntN(len(all))],
		Count: 1 + t.random.IntN(4), AfterEffect: t.random.IntN(2) == 0}
	if definitive := []codes.Code{codes.NotFound, codes.InvalidArgument}; t.random.IntN(5) == 0 && t.definitive > 0 {
		fault.Code, fault.Count = definitive[t.random.IntN(2)], 1+t.random.IntN(2)
		t.definitive -= fault.Count
	}
	t.say("STEP calls fail: %+v", fault)
	t.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{fault}})
}

// hangCalls makes the calls of one volume hang, or the Probes of the driver.
func (t *trial) hangCalls() {
	hang := fakecsi.Hang{Volume: t.volumes[t.random.IntN(len(t.volumes))].name, AfterEffect: t.random.IntN(2) == 0}
	if t.random.IntN(5) == 0 {
		hang = fakecsi.Hang{Method: fakecsi.Probe}
	}
	t.say("STEP calls hang: %+v", hang)
	t.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{hang}})
	t.later(func() {
		t.say("END calls do not hang any more: %+v", hang)
		t.turn(fakecsi.Knobs{Release: []fakecsi.Hang{hang}})
	})
}

// disconnect breaks the connections of one replica, and the calls in flight with them.
func (t *trial) disconnect() {
	r := t.replicas[t.random.IntN(len(t.replicas))]
	t.say("STEP the connections of %s break", r.name)
	r.disconnect()
}

func (t *trial) refuseConnections() {
	if t.setRefused(true) {
		return
	}
	t.say("STEP the driver is away")
	for _, r := range t.replicas {
		r.disconnect()
	}
	t.later(func() {
		t.say("END the driver is back")
		t.setRefused(false)
	})
}

// setRefused says whether nobody answers at the driver's endpoint, and returns what was so before.
func (t *trial) setRefused(to bool) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, t.refused = t.refused, to
	return was
}

func (t *trial) notReady() {
	t.say("STEP the driver is not ready")
	yes, no := true, false
	t.turn(fakecsi.Knobs{NotReady: &yes})
	t.later(func() {
		t.say("END the driver is ready")
		t.turn(fakecsi.Knobs{NotReady: &no})
	})
}

func (t *trial) failAPI() {
	t.say("STEP requests to the API fail at times")
	t.setAPIFaults(true)
	t.later(func() {
		t.say("END requests to the API do not fail any more")
		t.setAPIFaults(false)
	})
}

func (t *trial) setAPIFaults(to bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apiFaults = to
}

// holdWatches keeps the changes of one resource from all replicas. In the end they learn of them one by one, or
// have to list anew.
func (t *trial) holdWatches() {
	resource := []string{"volumeattachments", "volumeattachments", "persistentvolumes", "csinodes"}[t.random.IntN(4)]
	if t.held[resource] {
		return
	}
	t.say("STEP watches of %s are held", resource)
	t.held[resource] = true
	t.api.HoldWatches(resource)
	forget := t.random.IntN(3) == 0
	t.later(func() {
		t.say("END watches of %s go on, forgetful %v", resource, forget)
		t.held[resource] = false
		if forget {
			t.api.ForgetEvents()
		}
		t.api.ReleaseWatches(resource)
	})
}

// loseLease keeps one replica from renewing its leases.
func (t *trial) loseLease() {
	r := t.replicas[t.random.IntN(len(t.replicas))]
	t.say("STEP %s cannot renew leases", r.name)
	r.setLeaseCut(true)
	t.later(func() {
		t.say("END %s can renew leases", r.name)
		r.setLeaseCut(false)
	})
}

// endReplica stops or crashes a replica, and starts it again later.
func (t *trial) endReplica() {
	r := t.replicas[t.random.IntN(len(t.replicas))]
	if !r.runs() {
		return
	}
	if t.random.IntN(2) == 0 {
		t.say("STEP stop %s", r.name)
		r.stop()
	} else {
		t.say("STEP crash %s", r.name)
		r.crash()
	}
	t.later(r.start)
}
