package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const manyDrivers = 10

// many makes ten drivers with so many volumes each, spread over five nodes, and
// returns what attaches them.
func (w *world) many(each int) []testbed.Object {
	var drivers []string
	for i := range manyDrivers {
		name, _ := w.driver(fmt.Sprintf("d%d", i), fakecsi.Options{})
		w.turn(w.backend[name], fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{
			fakecsi.ControllerPublishVolume:   {Base: 20 * time.Millisecond},
			fakecsi.ControllerUnpublishVolume: {Base: 20 * time.Millisecond},
		}})
		drivers = append(drivers, name)
	}
	var nodes []string
	for i := range 5 {
		nodes = append(nodes, w.node(fmt.Sprintf("n%d", i), drivers...))
	}
	var volumes, attachments []testbed.Object
	for i, driver := range drivers {
		for j := range each {
			name := w.name(fmt.Sprintf("d%d-v%d", i, j))
			volumes = append(volumes, testbed.PersistentVolume{Name: name, Driver: driver, Handle: fmt.Sprintf("v%d", j)})
			attachments = append(attachments, testbed.VolumeAttachment{Name: name, Driver: driver, Node: nodes[j%len(nodes)], PersistentVolume: name})
		}
	}
	w.create(volumes...)
	return attachments
}

func (w *world) eachHas(n int) map[string]int {
	want := map[string]int{}
	for name := range w.drivers {
		want[name] = n
	}
	return want
}

// requests returns how many requests the API server has counted.
func (w *world) requests() testbed.RequestCounts {
	w.t.Helper()
	counts, err := w.plane.Requests(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return counts
}

func (w *world) checkPatches(since testbed.RequestCounts, what string, volumes, attachments, statuses int) {
	w.t.Helper()
	var patches testbed.RequestCounts
	patched := func(resource, subresource string) int {
		return patches.Sum(func(k testbed.RequestKey) bool {
			return k.Verb == "PATCH" && k.Resource == resource && k.Subresource == subresource
		})
	}
	// The API server counts a request a moment after watches have seen its effect.
	if err := wait.PollUntilContextCancel(w.ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
		patches = w.requests().Since(since)
		return patched("persistentvolumes", "") >= volumes && patched("volumeattachments", "") >= attachments && patched("volumeattachments", "status") >= statuses, nil
	}); err != nil {
		w.t.Errorf("%s: wait for the patches: %v", what, err)
	}
	for key, want := range map[testbed.RequestKey]int{
		{Resource: "persistentvolumes"}:                        volumes,
		{Resource: "volumeattachments"}:                        attachments,
		{Resource: "volumeattachments", Subresource: "status"}: statuses,
	} {
		if got := patched(key.Resource, key.Subresource); got != want {
			w.t.Errorf("%s: %d patches of %s/%s, want %d", what, got, key.Resource, key.Subresource, want)
		}
	}
}

func TestTenDriversAttachAndDetachWithTheFewestWritesAndCalls(t *testing.T) {
	const each = 20
	const all = manyDrivers * each
	w := newWorld(t)
	attachments := w.many(each)
	w.start()

	before := w.requests()
	w.create(attachments...)
	w.waitAllAttached(all)
	w.checkPatches(before, "first attach", all, all, all)
	w.checkBooks(w.eachHas(each))

	before = w.requests()
	w.delete(attachments...)
	w.waitNoneLeft()
	w.checkPatches(before, "detach", 0, all, 0)
	w.checkBooks(w.eachHas(0))

	before = w.requests()
	w.create(attachments...)
	w.waitAllAttached(all)
	w.checkPatches(before, "second attach", 0, all, all)
	w.delete(attachments...)
	w.waitNoneLeft()
	for name, backend := range w.backend {
		for method, want := range map[fakecsi.Method]int{fakecsi.ControllerPublishVolume: 2 * each, fakecsi.ControllerUnpublishVolume: 2 * each} {
			if got := backend.Books().Methods[method].Begun; got != want {
				t.Errorf("%s: %d calls of %s, want %d", name, got, method, want)
			}
		}
	}
}

func TestHangingDriverDoesNotDelayOthers(t *testing.T) {
	const each = 50 // more than the hub attaches at once for one driver
	w := newWorld(t)
	attachments := w.many(each)
	var hanging string
	for name := range w.drivers {
		hanging = name
		break
	}
	w.turn(w.backend[hanging], fakecsi.Knobs{Hang: []fakecsi.Hang{{}}})
	w.set(hanging, func(s *registry.Settings) { s.Timeout = time.Hour })
	w.start()
	w.turn(w.backend[hanging], fakecsi.Knobs{ReleaseAll: true}) // let it be connected to
	w.waitBooks(w.backend[hanging], "the hub knows what the driver can do", func(b fakecsi.Books) bool {
		return b.Methods[fakecsi.ControllerGetCapabilities].Ended > 0
	})
	w.turn(w.backend[hanging], fakecsi.Knobs{Hang: []fakecsi.Hang{{}}})

	w.create(attachments...)
	const others = (manyDrivers - 1) * each
	w.waitFor("all volumes of the other drivers attached", func(all []*storagev1.VolumeAttachment) bool {
		attached := 0
		for _, va := range all {
			if va.Status.Attached && va.Spec.Attacher != hanging {
				attached++
			}
		}
		return attached == others
	})
	if got := w.backend[hanging].Books(); len(got.Attached) != 0 || got.AttachInFlight.Now == 0 {
		t.Errorf("the hanging driver has %d volumes attached and %d calls in flight, want it to hang", len(got.Attached), got.AttachInFlight.Now)
	}
	w.turn(w.backend[hanging], fakecsi.Knobs{ReleaseAll: true})
	w.waitAllAttached(manyDrivers * each)
	w.delete(attachments...)
	w.waitNoneLeft()
	w.checkBooks(w.eachHas(0))
}
