package tests

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// bench carries plans out on the API server, one by one and without a hub.
type bench struct {
	*world
	decider   attach.Driver
	onPublish func()

	mu    sync.Mutex
	calls []string
}

func newBench(t *testing.T) *bench {
	b := &bench{world: newWorld(t)}
	b.decider = attach.Driver{Name: b.name("d"), Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
	return b
}

func (b *bench) called(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, what)
}

func (b *bench) ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	b.called("publish")
	if b.onPublish != nil {
		b.onPublish()
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (b *bench) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	b.called("unpublish")
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (b *bench) VolumeAttachmentWritten(*storagev1.VolumeAttachment) {}
func (b *bench) PersistentVolumeWritten(*attach.Volume)              {}

// unlimited lets every write pass.
func unlimited(context.Context) error { return nil }

func (b *bench) attacher() attach.Attacher {
	return attach.Attacher{Call: func(ctx context.Context, _ string, do func(context.Context, attach.Controller) error) error {
		return do(ctx, b)
	}, CallTimeout: time.Minute, Redactor: &attach.Redactor{},
		Writer: attach.Writer{Kube: b.plane.Clientset(), Limit: unlimited, Fence: unlimited, Written: b, FinalizerWrites: &singleflight.Group{}}}
}

// progress is what a process believes of one VolumeAttachment for which it carries plans out.
type progress struct {
	table *volume.Table
	known *volume.Attachment
}

func (b *bench) progress(va testbed.VolumeAttachment) progress {
	b.t.Helper()
	table := volume.NewTable(attach.Finalizer(b.decider.Name))
	return progress{table, table.Open(b.get(va.Name))}
}

// carryOut makes all steps of a plan up to the first error. No other VolumeAttachment owns the volume.
func (b *bench) carryOut(plan planned, p progress) error {
	a, run := b.attacher(), volume.Run{Plan: plan.Plan}
	var lives *storagev1.VolumeAttachment
	for {
		effect := p.table.NextEffect(p.known, run)
		p.table.Start(p.known, run, effect)
		outcome, err := volume.Outcome{Owner: volume.NoOwner}, error(nil)
		switch effect.Kind {
		case volume.Finished:
			return nil
		case volume.AddFinalizers:
			err = a.AddFinalizers(b.ctx, plan.Plan)
		case volume.Publish:
			outcome.Context, err = a.Publish(b.ctx, plan.Plan, nil)
		case volume.MarkAttached:
			err = a.MarkAttached(b.ctx, plan.va, plan.Target, p.known.Context)
		case volume.Unpublish:
			err = a.Unpublish(b.ctx, effect.Target, nil)
		case volume.RemoveFinalizer:
			lives, err = a.RemoveFinalizer(b.ctx, plan.va)
			outcome.Alive = lives != nil
		case volume.MarkDetached:
			err = a.MarkDetached(b.ctx, lives)
		}
		if err != nil {
			outcome.Result = volume.NotDone
		}
		p.table.Apply(p.known, &run, effect, outcome)
		if err != nil {
			return err
		}
		switch effect.Kind { // the objects as this process has written them, whatever others have written
		case volume.AddFinalizers:
			run.Plan.VolumeFinalizer, run.Plan.AttachmentFinalizer = nil, nil
		case volume.MarkAttached:
			run.Plan = attach.Plan{}
		}
	}
}

// planned is a plan and the VolumeAttachment that it was made of.
type planned struct {
	attach.Plan
	va *storagev1.VolumeAttachment
}

// plan decides on the objects as they are now.
func (b *bench) plan(a testbed.VolumeAttachment) planned {
	b.t.Helper()
	va := b.get(a.Name)
	node, err := b.plane.Clientset().StorageV1().CSINodes().Get(b.ctx, a.Node, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	plan, err := b.decider.Decide(attach.Inputs{VolumeAttachment: va, PersistentVolume: attach.VolumeOf(b.getVolume(a.PersistentVolume)), CSINode: node})
	if err != nil {
		b.t.Fatal(err)
	}
	return planned{plan, va}
}

func (w *world) getVolume(name string) *corev1.PersistentVolume {
	w.t.Helper()
	pv, err := w.plane.Clientset().CoreV1().PersistentVolumes().Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pv
}

// patchVolume writes to a PersistentVolume as another writer may.
func (w *world) patchVolume(name, patch string) {
	w.t.Helper()
	_, err := w.plane.Clientset().CoreV1().PersistentVolumes().Patch(w.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (b *bench) wantFinalizers(va testbed.VolumeAttachment, want ...string) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.get(va.Name).Finalizers); diff != "" {
		b.t.Errorf("finalizers of the VolumeAttachment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, b.getVolume(va.PersistentVolume).Finalizers); diff != "" {
		b.t.Errorf("finalizers of the PersistentVolume (-want +got):\n%s", diff)
	}
}

func (b *bench) wantCalls(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if diff := cmp.Diff(want, b.calls); diff != "" {
		b.t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestStalePlanLosesNobodysFinalizer(t *testing.T) {
	b := newBench(t)
	ours := attach.Finalizer(b.decider.Name)
	va := b.volume("v", b.decider.Name, b.node("n", b.decider.Name))
	b.create(va)
	stale := b.plan(va)
	b.setFinalizers(va.Name, `["example.com/a","example.com/b"]`)
	b.patchVolume(va.PersistentVolume, `{"metadata":{"finalizers":["example.com/a","example.com/b"]}}`)
	progress := b.progress(va)
	if err := b.carryOut(stale, progress); !errors.Is(err, attach.ErrStale) {
		t.Fatalf("attach by a stale plan: %v, want ErrStale", err)
	}
	b.wantFinalizers(va, "example.com/a", "example.com/b")
	b.wantCalls()
	if err := b.carryOut(b.plan(va), progress); err != nil {
		t.Fatal(err)
	}
	b.wantFinalizers(va, "example.com/a", "example.com/b", ours)
	b.wantCalls("publish")

	b.setFinalizers(va.Name, `["example.com/a","example.com/b","`+ours+`","example.com/c"]`)
	b.patchVolume(va.PersistentVolume, `{"metadata":{"finalizers":["example.com/a","example.com/b","`+ours+`","example.com/c"]}}`)
	b.delete(va, testbed.PersistentVolume{Name: va.PersistentVolume})
	stale = b.plan(va)
	before := attach.VolumeOf(b.getVolume(va.PersistentVolume))
	// Where ours was is another one now.
	b.setFinalizers(va.Name, `["example.com/b","`+ours+`","example.com/c"]`)
	b.patchVolume(va.PersistentVolume, `{"metadata":{"finalizers":["example.com/b","`+ours+`","example.com/c"]}}`)
	if err := b.carryOut(stale, progress); !errors.Is(err, attach.ErrStale) {
		t.Errorf("detach by a stale plan: %v, want ErrStale", err)
	}
	if err := b.attacher().RemoveVolumeFinalizer(b.ctx, before, b.decider.Name); !errors.Is(err, attach.ErrStale) {
		t.Errorf("release the volume by a stale cache: %v, want ErrStale", err)
	}
	b.wantFinalizers(va, "example.com/b", ours, "example.com/c")
	if err := b.carryOut(b.plan(va), progress); err != nil {
		t.Error(err)
	}
	if err := b.attacher().RemoveVolumeFinalizer(b.ctx, attach.VolumeOf(b.getVolume(va.PersistentVolume)), b.decider.Name); err != nil {
		t.Error(err)
	}
	b.wantFinalizers(va, "example.com/b", "example.com/c")
	b.wantCalls("publish", "unpublish")
	b.setFinalizers(va.Name, "null")
	b.patchVolume(va.PersistentVolume, `{"metadata":{"finalizers":null}}`)
}

func TestPlanWritesNothingToANamesakeOfWhatItWasMadeFor(t *testing.T) {
	b := newBench(t)
	va := b.volume("v", b.decider.Name, b.node("n", b.decider.Name))
	b.create(va)
	replace := func() {
		b.setFinalizers(va.Name, "null")
		b.delete(va)
		b.create(va)
	}
	untouched := func(what string) {
		t.Helper()
		// Its own creation is all that has happened to it.
		if got := b.get(va.Name); len(got.Finalizers)+len(got.Annotations) > 0 || got.Status.Attached || got.Status.AttachError != nil {
			t.Errorf("%s was written to the namesake: %+v", what, got)
		}
	}
	progress := b.progress(va)

	stale, old := b.plan(va), b.get(va.Name)
	replace()
	if err := b.carryOut(stale, progress); !errors.Is(err, attach.ErrStale) {
		t.Errorf("attach: %v, want ErrStale", err)
	}
	if err := b.attacher().SaveError(b.ctx, old, attach.Attaching, errors.New("why")); !errors.Is(err, attach.ErrStale) {
		t.Errorf("save an error: %v, want ErrStale", err)
	}
	untouched("finalizer or error")
	b.wantCalls()

	b.onPublish = replace
	if err := b.carryOut(b.plan(va), progress); !errors.Is(err, attach.ErrStale) {
		t.Errorf("attach of what is replaced during the call: %v, want ErrStale", err)
	}
	untouched("status")
	if p := progress.known; !p.MayBePublished() {
		t.Error("the volume of the old object is forgotten, and it is attached")
	}
	b.setFinalizers(va.Name, "null")
	b.delete(va)
}

func TestAttachOfWhatIsGoneIsNoErrorForTheStatus(t *testing.T) {
	b := newBench(t)
	va := b.volume("v", b.decider.Name, b.node("n", b.decider.Name))
	b.create(va)
	stale, progress := b.plan(va), b.progress(va)
	b.delete(va)
	if err := b.carryOut(stale, progress); !attach.NotReady(err) {
		t.Errorf("attach of a VolumeAttachment that is gone: %v, want an error that nobody tries to save", err)
	}
	b.wantCalls()
}

func TestFinalizerOfAVolumeInUseTwiceIsThereOnce(t *testing.T) {
	b := newBench(t)
	ours := attach.Finalizer(b.decider.Name)
	one, two := b.node("n1", b.decider.Name), b.node("n2", b.decider.Name)
	name := b.name("v")
	b.create(testbed.PersistentVolume{Name: name, Driver: b.decider.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}})
	b.patchVolume(name, `{"metadata":{"finalizers":["example.com/a"]}}`)
	first := testbed.VolumeAttachment{Name: name, Driver: b.decider.Name, Node: one, PersistentVolume: name}
	second := testbed.VolumeAttachment{Name: b.name("second"), Driver: b.decider.Name, Node: two, PersistentVolume: name}
	b.create(first, second)
	plans := []planned{b.plan(first), b.plan(second)}
	progress := []progress{b.progress(first), b.progress(second)}
	var both sync.WaitGroup
	errs := make([]error, len(plans))
	for i, plan := range plans {
		both.Go(func() { errs[i] = b.carryOut(plan, progress[i]) })
	}
	both.Wait()
	failed := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, attach.ErrStale) })
	if failed < 0 || errs[1-failed] != nil {
		t.Fatalf("attach by two plans of the same moment: %v, want one ErrStale", errs)
	}
	if err := b.carryOut(b.plan([]testbed.VolumeAttachment{first, second}[failed]), progress[failed]); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"example.com/a", ours}, b.getVolume(name).Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	b.setFinalizers(first.Name, "null")
	b.setFinalizers(second.Name, "null")
	b.delete(first, second)
}

func TestDetachIsOfTheVolumeThatWasAttachedNotOfItsNamesake(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.delete(testbed.PersistentVolume{Name: va.PersistentVolume})
	w.patchVolume(va.PersistentVolume, `{"metadata":{"finalizers":null}}`)
	w.create(testbed.PersistentVolume{Name: va.PersistentVolume, Driver: driver, Handle: "another"})
	w.fence("fence", driver, va.Node)
	w.delete(va)
	w.waitFor("detached", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	if backend.LastUnpublish("v") == nil || backend.LastUnpublish("another") != nil {
		t.Error("the volume that was attached was not detached, but another one of that name")
	}
	w.checkBooks(map[string]int{driver: 1})
}
