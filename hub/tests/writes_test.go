package tests

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
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
		v.turn(hanging(unpublish))
		v.delete(va)
		v.pass(time.Second)
		v.api.HoldWatches("volumeattachments")
		v.stripFinalizers(va.Name)
		before := v.patched()
		v.turn(healed)
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
			v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Code: codes.NotFound, Count: 2}}})
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

// bench makes writes on the API server from objects as they were.
type bench struct {
	*world
	decider attach.Driver
}

func newBench(t *testing.T) (b bench, va testbed.VolumeAttachment) {
	b = bench{world: newWorld(t)}
	b.decider = attach.Driver{Name: b.name("d"), Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
	va = b.volume("v", b.decider.Name, b.node("n", b.decider.Name))
	b.create(va)
	return b, va
}

func (b bench) VolumeAttachmentWritten(*storagev1.VolumeAttachment) {}
func (b bench) PersistentVolumeWritten(*attach.Volume)              {}

// writer is one of a process of its own.
func (b bench) writer() attach.Writer {
	unlimited := func(context.Context) error { return nil }
	return attach.Writer{Kube: b.kube, Limit: unlimited, Fence: unlimited, Written: b, FinalizerWrites: &singleflight.Group{}}
}

// plan decides on the objects as they are now.
func (b bench) plan(a testbed.VolumeAttachment) attach.Plan {
	b.t.Helper()
	node, err := b.kube.StorageV1().CSINodes().Get(b.ctx, a.Node, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	plan, err := b.decider.Decide(attach.Inputs{VolumeAttachment: b.get(a.Name), PersistentVolume: attach.VolumeOf(b.getVolume(a.PersistentVolume)), CSINode: node})
	if err != nil {
		b.t.Fatal(err)
	}
	return plan
}

// hold has others write the finalizers of both objects.
func (b bench) hold(va testbed.VolumeAttachment, finalizers ...string) {
	b.t.Helper()
	b.setFinalizers(va.Name, finalizers...)
	b.updateVolume(va.PersistentVolume, func(pv *corev1.PersistentVolume) { pv.Finalizers = finalizers })
}

func (b bench) wantHeld(va testbed.VolumeAttachment, want ...string) {
	b.t.Helper()
	if a, v := b.get(va.Name).Finalizers, b.getVolume(va.PersistentVolume).Finalizers; !slices.Equal(a, want) || !slices.Equal(v, want) {
		b.t.Errorf("finalizers %q and %q, want %q", a, v, want)
	}
}

func (b bench) wantStale(what string, err error) {
	b.t.Helper()
	if !errors.Is(err, attach.ErrStale) || !attach.NotReady(err) {
		b.t.Errorf("%s: %v, want ErrStale, which nobody tries to save", what, err)
	}
}

func (b bench) wantDone(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Error(err)
	}
}

func TestStalePlanLosesNobodysFinalizer(t *testing.T) {
	b, va := newBench(t)
	const one, two, three = "example.com/a", "example.com/b", "example.com/c"
	ours := attach.Finalizer(b.decider.Name)
	stale := b.plan(va)
	b.hold(va, one, two)
	b.wantStale("add finalizers by a stale plan", b.writer().AddFinalizers(b.ctx, stale))
	b.wantHeld(va, one, two)
	b.wantDone(b.writer().AddFinalizers(b.ctx, b.plan(va)))
	b.wantHeld(va, one, two, ours)

	b.hold(va, one, two, ours, three)
	b.delete(va, testbed.PersistentVolume{Name: va.PersistentVolume})
	old, oldVolume := b.get(va.Name), attach.VolumeOf(b.getVolume(va.PersistentVolume))
	b.hold(va, two, ours, three) // where ours was is another one now
	_, err := b.writer().RemoveFinalizer(b.ctx, old)
	b.wantStale("remove the finalizer by a stale cache", err)
	b.wantStale("release the volume by a stale cache", b.writer().RemoveVolumeFinalizer(b.ctx, oldVolume, b.decider.Name))
	b.wantHeld(va, two, ours, three)
	_, err = b.writer().RemoveFinalizer(b.ctx, b.get(va.Name))
	b.wantDone(err)
	b.wantDone(b.writer().RemoveVolumeFinalizer(b.ctx, attach.VolumeOf(b.getVolume(va.PersistentVolume)), b.decider.Name))
	b.wantHeld(va, two, three)
	b.hold(va)
}

func TestPlanWritesNothingToANamesakeOfWhatItWasMadeFor(t *testing.T) {
	b, va := newBench(t)
	stale, old := b.plan(va), b.get(va.Name)
	b.delete(va)
	b.wantStale("add finalizers to what is gone", b.writer().AddFinalizers(b.ctx, stale))
	b.create(va)
	b.wantStale("add finalizers", b.writer().AddFinalizers(b.ctx, stale))
	b.wantStale("save an error", b.writer().SaveError(b.ctx, old, attach.Attaching, errors.New("why")))
	b.wantStale("mark attached", b.writer().MarkAttached(b.ctx, old, stale.Target, nil))
	if got := b.get(va.Name); len(got.Finalizers)+len(got.Annotations) > 0 || got.Status.Attached || got.Status.AttachError != nil {
		t.Errorf("written to the namesake: %+v", got)
	}
	b.delete(va)
}

func TestFinalizerOfAVolumeInUseTwiceIsThereOnce(t *testing.T) {
	b, first := newBench(t)
	second := testbed.VolumeAttachment{Name: b.name("second"), Driver: b.decider.Name, Node: b.node("n2", b.decider.Name), PersistentVolume: first.PersistentVolume}
	b.create(second)
	b.updateVolume(first.PersistentVolume, func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"example.com/a"} })
	plans := []attach.Plan{b.plan(first), b.plan(second)}
	var both sync.WaitGroup
	errs := make([]error, len(plans))
	for i, plan := range plans {
		both.Go(func() { errs[i] = b.writer().AddFinalizers(b.ctx, plan) })
	}
	both.Wait()
	failed := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, attach.ErrStale) })
	if failed < 0 || errs[1-failed] != nil {
		t.Fatalf("attach by two plans of the same moment: %v, want one ErrStale", errs)
	}
	b.wantDone(b.writer().AddFinalizers(b.ctx, b.plan([]testbed.VolumeAttachment{first, second}[failed])))
	if got := b.getVolume(first.PersistentVolume).Finalizers; !slices.Equal(got, []string{"example.com/a", attach.Finalizer(b.decider.Name)}) {
		t.Errorf("finalizers %q", got)
	}
	b.stripFinalizers(first.Name)
	b.stripFinalizers(second.Name)
	b.delete(first, second)
}
