package tests

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
)

func TestFinalizersComeBeforeTheCallAndTheStatusAfterIt(t *testing.T) {
	for name, finalizers := range map[string][]string{"nobody else holds the object": nil, "somebody else holds it": {"example.com/first", "example.com/last"}} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				said := v.listen()
				v.start()
				va := v.attached()
				calls := said()
				slices.Sort(calls[:min(2, len(calls))]) // side by side
				if want := []string{"patch persistentvolumes v", "patch volumeattachments v-n", "ControllerPublishVolume v", "patch volumeattachments/status v-n"}; !slices.Equal(calls, want) {
					t.Errorf("attach: %q, want %q", calls, want)
				}
				want := []string{"ControllerUnpublishVolume v", "patch volumeattachments v-n"}
				if finalizers != nil {
					v.update(va.Name, func(va *storagev1.VolumeAttachment) { va.Finalizers = append(va.Finalizers, finalizers...) })
					want = append(want, "patch volumeattachments/status v-n")
				}
				v.delete(va)
				v.pass(time.Hour)
				if calls := said(); !slices.Equal(calls, want) {
					t.Errorf("detach: %q, want %q", calls, want)
				}
			})
		})
	}
}

func TestNothingIsWrittenOfWhatWasDeletedBeforeAnythingWasDone(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("v")
		va := v.attach("v")[0]
		v.setFinalizers(va.Name, "example.com/other")
		v.delete(va)
		said := v.listen()
		v.start()
		v.pass(time.Hour)
		if calls := said(); len(calls) > 0 {
			t.Errorf("%q, want nothing", calls)
		}
	})
}

func TestOwnWritesAreNotRepeatedWhileTheWatchesLag(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.setAway(true)
		v.register("n", "id-n")
		v.register("m", "id-m")
		v.volume("v", corev1.ReadWriteMany)
		v.create(v.attachment("v", "n"), v.attachment("v", "m"))
		v.start()
		v.pass(time.Second)
		before := v.api.Requests()
		v.api.HoldWatches("volumeattachments")
		v.api.HoldWatches("persistentvolumes")
		v.slow(100*time.Millisecond, patches("persistentvolumes")) // so that one write is for both
		v.mend()
		v.pass(time.Minute)
		for range 2 { // all that the caches have is looked at once more whenever the driver comes back
			v.hangUp()
			v.pass(time.Minute)
		}
		want := map[fakekube.Request]int{{Verb: "patch", Resource: "persistentvolumes", Name: "v"}: 1}
		for _, name := range []string{"v-n", "v-m"} {
			want[fakekube.Request{Verb: "patch", Resource: "volumeattachments", Name: name}] = 1
			want[fakekube.Request{Verb: "patch", Resource: "volumeattachments/status", Name: name}] = 1
		}
		got := v.requestsSince(before)
		maps.DeleteFunc(got, func(r fakekube.Request, _ int) bool { return r.Verb != "patch" })
		if !maps.Equal(got, want) || v.begun(publish) != 2 {
			t.Errorf("%d publishes and writes %v, want 2 and %v", v.begun(publish), got, want)
		}
		v.wantAttached("v-n", "v-m")
	})
}

// The answer to the write that lets go may be lost: then only the watch tells that there is nothing left to do.
func TestNothingIsWrittenAgainAndAgainWhileAWatchOwesTheEndOfAnAttachment(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.setKnobs(hanging(unpublish))
		v.delete(va)
		v.pass(time.Second)
		v.api.HoldWatches("volumeattachments")
		v.stripFinalizers(va.Name)
		before := v.patched()
		v.setKnobs(healed)
		v.pass(5 * time.Minute)
		if n := v.patched() - before; n > 1 || v.begun(unpublish) != 1 {
			t.Errorf("%d writes to what is gone and %d unpublishes, want one of each", n, v.begun(unpublish))
		}
	})
}

// listen notes what a hub says to the API server and to the driver. said returns what ended since it was last called.
func (v *virtual) listen() (said func() []string) {
	var mu sync.Mutex
	var all []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, what)
	}
	v.api.Intercept(func(r fakekube.Request) int {
		if r.Verb == "patch" {
			note("patch " + r.Resource + " " + r.Name)
		}
		return 0
	})
	v.observe = func(e fakecsi.Event) {
		if e.Kind == fakecsi.CallEnded {
			note(string(e.Method) + " " + e.Volume)
		}
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		was := all
		all = nil
		return was
	}
}

func TestWriteThatFailsRepeatsNoCallAndStopsNoRetry(t *testing.T) {
	fail := func(v *virtual, times int32, writes func(fakekube.Request) bool) {
		var failed atomic.Int32 // writes are concurrent
		v.reply(http.StatusInternalServerError, func(r fakekube.Request) bool { return writes(r) && failed.Add(1) <= times })
	}
	type row struct {
		fail        func(*virtual)
		publishes   int
		unpublishes int
	}
	eachInVirtualTime(t, map[string]row{
		"that of attached":       {func(v *virtual) { fail(v, 1, patches("volumeattachments/status")) }, 1, 1},
		"that of the finalizers": {func(v *virtual) { fail(v, 2, patches("volumeattachments")) }, 1, 1},
		"that of an error": {func(v *virtual) {
			v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Code: codes.NotFound, Count: 2}}})
			fail(v, 2, patches("volumeattachments/status"))
		}, 3, 1},
		"that of the removal of the finalizer": {func(v *virtual) {
			fail(v, 2, func(r fakekube.Request) bool { return patches("volumeattachments")(r) && v.begun(unpublish) > 0 })
		}, 1, 1},
	}, func(v *virtual, c row) {
		v.withNode("v")
		c.fail(v)
		v.start()
		va := v.attach("v")[0]
		v.pass(time.Minute)
		v.wantAttached(va.Name)
		if len(v.get(va.Name).Status.AttachmentMetadata) == 0 {
			v.t.Error("the publish context is lost")
		}
		v.delete(va)
		v.pass(time.Minute)
		v.wantGone(va.Name)
		if p, u := v.begun(publish), v.begun(unpublish); p != c.publishes || u != c.unpublishes {
			v.t.Errorf("%d publishes and %d unpublishes, want %d and %d", p, u, c.publishes, c.unpublishes)
		}
	})
}
