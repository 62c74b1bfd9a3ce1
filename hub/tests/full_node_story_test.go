package tests

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Tries in a loop of 90 attaches that cannot succeed keep the driver from the detaches that would help them.
func TestFullNodeGetsNoMoreCallsThanItHasPlaces(t *testing.T) {
	const attaches, places, detaches = 100, 10, 20
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.turn(backend, fakecsi.Knobs{MaxVolumesPerNode: new(places),
		Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerPublishVolume: {Base: 5 * time.Millisecond}}})
	node := w.node("n", driver)
	var volumes, all []testbed.Object
	for i := range attaches {
		name := w.name(fmt.Sprintf("v%d", i))
		volumes = append(volumes, testbed.PersistentVolume{Name: name, Driver: driver, Handle: fmt.Sprintf("v%d", i)})
		all = append(all, testbed.VolumeAttachment{Name: name, Driver: driver, Node: node, PersistentVolume: name})
	}
	w.create(volumes...)
	updates, h := w.run()
	updates <- maps.Clone(w.drivers)
	w.create(all...)
	calls := func(detached int) {
		t.Helper()
		most := places + registry.DefaultSettings().Workers + detached // and those of the fallback, which come every few seconds
		if got := backend.Books().Methods[fakecsi.ControllerPublishVolume].Ended; got > most+10 || got > attaches+places+detached {
			t.Errorf("%d calls after %d detaches, want at most %d", got, detached, most)
		}
	}
	w.waitShown(h, driver, "90 that wait", func(d status.Driver) bool { return d.WaitingForCapacity == attaches-places })
	w.waitAttachedOn(node, places)
	calls(0)
	for i := range detaches {
		var oldest string
		w.waitFor("all places taken", func(vas []*storagev1.VolumeAttachment) bool {
			attached := slices.DeleteFunc(slices.Clone(vas), func(va *storagev1.VolumeAttachment) bool { return !va.Status.Attached || va.DeletionTimestamp != nil })
			if len(vas) != attaches-i || len(attached) != places {
				return false
			}
			oldest = attached[0].Name
			return true
		})
		w.delete(testbed.VolumeAttachment{Name: oldest})
	}
	w.waitFor("all places taken", func(vas []*storagev1.VolumeAttachment) bool { return len(vas) == attaches-detaches })
	w.waitAttachedOn(node, places)
	calls(detaches)
	w.checkBooks(map[string]int{driver: places})
}
