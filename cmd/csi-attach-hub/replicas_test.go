package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// awaitShared waits until at most n replicas hold all drivers, none of them more than half as many again as its share. The
// leases are in the namespace of the scene's name.
func (s *scene) awaitShared(n int) {
	s.t.Helper()
	most := (3*len(s.drivers) + 2*n - 1) / (2 * n)
	var holders map[string]string
	s.until(func() bool {
		list, err := s.Plane.Clientset().CoordinationV1().Leases(s.prefix).List(s.t.Context(), metav1.ListOptions{})
		s.must(err)
		holders = map[string]string{}
		loads := map[string]int{}
		for _, l := range list.Items {
			i := slices.IndexFunc(s.drivers, func(driver string) bool { return registry.LeaseName(driver) == l.Name })
			if holder := ptr.Deref(l.Spec.HolderIdentity, ""); i >= 0 && holder != "" {
				holders[s.drivers[i]] = holder
				loads[holder]++
			}
		}
		return len(holders) == len(s.drivers) && len(loads) <= n && slices.Max(slices.Collect(maps.Values(loads))) <= most
	}, func() string {
		return fmt.Sprintf("%d replicas never shared the drivers, they are held by %v", n, holders)
	})
}

// countLists returns how many lists of each resource, and how many watches, have been begun, by anybody.
func (s *scene) countLists() map[string]int {
	s.t.Helper()
	requests, err := s.Plane.Requests(s.ctx)
	s.must(err)
	counts, err := s.Plane.Watches(s.ctx)
	s.must(err)
	for key, n := range requests {
		if key.Verb == "LIST" {
			counts[key.Resource] += n
		}
	}
	return counts
}

func TestReplicasShareTheDriversAndTakeThemOverWithoutAListOrADial(t *testing.T) {
	s := newScene(t, "replicas")
	const drivers, volumes, replicas = 6, 4, 3
	// The drivers of hubs of other tests would count when these are shared.
	_, err := s.Plane.Clientset().CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.prefix}}, metav1.CreateOptions{})
	s.must(err)
	backends := map[string]*fakecsi.Backend{}
	for i := range drivers {
		d := s.driver(fmt.Sprint("d", i), "")
		backends[d.Name] = d.Backend
	}
	var hubs []*testbed.Process
	for range replicas {
		hubs = append(hubs, s.startHub(append(shortLeases, "--leader-election-namespace="+s.prefix)...))
	}
	s.awaitShared(replicas)
	var all []testbed.Object
	for _, driver := range s.drivers {
		all = append(all, s.attachments(driver, volumes)...)
		s.must(backends[driver].Wait(s.ctx, func(b fakecsi.Books) bool { return b.Methods[fakecsi.ControllerGetCapabilities].Ended == replicas }))
	}
	s.create(all...)
	s.waitFor("all attached", testbed.AllAttached(len(all)))
	before := s.countLists()

	s.checkExit(hubs[0])
	s.awaitShared(2)
	s.delete(all[:len(all)/2]...)
	s.waitFor("half of them gone", testbed.AllAttached(len(all)/2))
	hubs[1].Kill()
	s.delete(all...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	s.awaitShared(1)

	after := s.countLists()
	for _, resource := range []string{"volumeattachments", "persistentvolumes", "csinodes", "csidrivers"} {
		if n := after[resource] - before[resource]; n != 0 {
			t.Errorf("%d lists and watches of %s begun to take over, want none", n, resource)
		}
	}
	for driver, backend := range backends {
		b := backend.Books()
		if err := b.Check(); err != nil || len(b.Attached) > 0 {
			t.Errorf("%s: attached %v, %v", driver, b.Attached, err)
		}
		if n := b.Methods[fakecsi.GetPluginInfo].Begun; n != replicas {
			t.Errorf("%s was connected to %d times, want once by each replica", driver, n)
		}
	}
	s.checkExit(hubs[2])
}
