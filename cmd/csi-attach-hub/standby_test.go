package main

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// cached are the resources that a hub keeps caches of, and leases.
var cached = []string{"volumeattachments", "persistentvolumes", "csinodes", "csidrivers", "leases"}

func TestTakingADriverOverCostsNoListAndNoDial(t *testing.T) {
	s := newScene(t, "standby")
	r := newReplicas(s, 4, fakecsi.Latency{Base: 10 * time.Millisecond})
	first := r.start(s.plane.Kubeconfig())
	second := r.start(s.plane.Kubeconfig())
	before, _ := r.shared(2)
	var all []testbed.Object
	for _, driver := range s.drivers {
		all = append(all, s.attachments(driver, 10)...)
	}
	s.create(all...)
	s.waitFor("all attached", testbed.AllAttached(len(all)))
	for driver, backend := range r.backends {
		if err := backend.Wait(s.ctx, func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerGetCapabilities].Ended == 2 }); err != nil {
			t.Fatalf("%s: never connected to by both: %v", driver, err)
		}
	}
	lists, watches := countLists(s)

	if err := first.Stop(s.ctx, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	s.delete(all...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])

	nowLists, nowWatches := countLists(s)
	if moved := r.look().moved(before); len(moved) == 0 {
		t.Error("no driver has been taken over")
	}
	for _, resource := range cached {
		if n := nowLists[resource] - lists[resource]; n != 0 {
			t.Errorf("%d lists of %s to take over, want none", n, resource)
		}
		if n := nowWatches[resource] - watches[resource]; n != 0 {
			t.Errorf("%d watches of %s begun to take over, want none", n, resource)
		}
	}
	for driver, backend := range r.backends {
		b := backend.Books()
		if n := b.Methods[fakecsi.GetPluginInfo].Begun; n != 2 {
			t.Errorf("%s was connected to %d times, want once by each replica", driver, n)
		}
	}
	r.checkBooks()
	s.checkExit(second)
}

// countLists returns how many lists of each resource, and how many watches, have been
// begun.
func countLists(s *scene) (lists, watches map[string]int) {
	s.t.Helper()
	requests, err := s.plane.Requests(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	lists = map[string]int{}
	for key, n := range requests {
		if key.Verb == "LIST" {
			lists[key.Resource] += n
		}
	}
	if watches, err = s.plane.Watches(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	return lists, watches
}
