package attach

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

func modes(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Spec.AccessModes = modes }
}

func handle(handle string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = handle }
}

func TestDetachIsOfTheModeOfItsVolumeIfThatIsKnown(t *testing.T) {
	const rwo, rox, rwx = corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany
	noted := annotated(AnnotationVolumeHandle, "vol-1")
	for name, c := range map[string]struct {
		va         *storagev1.VolumeAttachment
		pv         *corev1.PersistentVolume
		singleNode bool
	}{
		"one node":                    {attachment(guarded, deleted), volume(), true},
		"many nodes":                  {attachment(guarded, deleted), volume(modes(rwx)), false},
		"many nodes, read-only":       {attachment(guarded, deleted), volume(modes(rox)), false},
		"many nodes among others":     {attachment(guarded, deleted), volume(modes(rwo, rwx)), false},
		"modes that do not go along":  {attachment(guarded, deleted), volume(modes(rwo, rox)), true},
		"no mode":                     {attachment(guarded, deleted), volume(modes()), true},
		"the volume as noted":         {attachment(guarded, deleted, noted), volume(modes(rwx)), false},
		"another volume than noted":   {attachment(guarded, deleted, noted), volume(modes(rwx), handle("vol-2")), true},
		"no PersistentVolume":         {attachment(guarded, deleted, noted), nil, true},
		"no PersistentVolume, inline": {attachment(guarded, deleted, inline(&volume(modes(rwx)).Spec)), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := attaching.Decide(Facts{VolumeAttachment: c.va, PersistentVolume: c.pv, CSINode: csiNode("id-1")})
			if err != nil {
				t.Fatal(err)
			}
			var p Progress
			if plan.SingleNode != c.singleNode || p.MultiNode(plan) == c.singleNode {
				t.Errorf("single node %v, beside other nodes %v; want single node %v", plan.SingleNode, p.MultiNode(plan), c.singleNode)
			}
		})
	}
}

// publishedAs is what a process knows that has published a volume with a mode, whether the
// call has succeeded or not.
func publishedAs(t *testing.T, pv *corev1.PersistentVolume) Progress {
	t.Helper()
	backend, err := fakecsi.New(fakecsi.Options{Name: driverName})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := attaching.Decide(Facts{VolumeAttachment: attachment(), PersistentVolume: pv, CSINode: csiNode("id-1")})
	if err != nil {
		t.Fatal(err)
	}
	var p Progress
	if err := (Attacher{Controller: backend, CallTimeout: time.Minute}).publish(t.Context(), plan, &p, nil); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCallRunsBesideOtherNodesOnlyIfTheModeIsSoNowAndAsPublished(t *testing.T) {
	one, many := volume(), volume(modes(corev1.ReadWriteMany))
	another := volume(modes(corev1.ReadWriteMany), handle("vol-2"))
	var unpublished Progress
	adopted := func(pv *corev1.PersistentVolume) Progress {
		var p Progress
		p.Adopt(attachment(guarded, annotated(AnnotationNodeID, "id-1"), annotated(AnnotationVolumeHandle, "vol-1")), pv, finalizer)
		return p
	}
	for name, c := range map[string]struct {
		progress Progress
		now      *corev1.PersistentVolume // nil: it is gone
		call     bool                     // at the PersistentVolume's own handle
		left     bool                     // where the volume was left attached
	}{
		"as before":                           {publishedAs(t, many), many, true, true},
		"one node, as before":                 {publishedAs(t, one), one, false, false},
		"was one node":                        {publishedAs(t, one), many, false, false},
		"is one node":                         {publishedAs(t, many), one, false, false},
		"was published by others":             {adopted(many), many, true, true},
		"was published by others, then many":  {adopted(one), many, false, false},
		"not published":                       {unpublished, many, true, false},
		"gone":                                {publishedAs(t, many), nil, false, true},
		"gone, one node":                      {publishedAs(t, one), nil, false, false},
		"gone, published by others":           {adopted(nil), nil, false, false},
		"gone after it was published by them": {adopted(many), nil, false, true},
		"another volume":                      {publishedAs(t, one), another, true, false},
		"another volume than by others":       {adopted(another), nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.progress.LeftMultiNode(c.now); got != c.left {
				t.Errorf("where it was left: %v, want %v", got, c.left)
			}
			va := attachment(guarded, deleted)
			if c.now == nil {
				va = attachment(guarded, deleted, annotated(AnnotationVolumeHandle, "vol-1"))
			}
			plan, err := attaching.Decide(Facts{VolumeAttachment: va, PersistentVolume: c.now, CSINode: csiNode("id-1")})
			if err != nil {
				t.Fatal(err)
			}
			if got := c.progress.MultiNode(plan); got != c.call {
				t.Errorf("the call: %v, want %v", got, c.call)
			}
		})
	}
}

func TestFinalizerOfAVolumeIsNotWrittenAgainOnceAnotherAttachHasDoneSo(t *testing.T) {
	for name, c := range map[string]struct {
		newest func(pv *corev1.PersistentVolume)
		writes bool
	}{
		"written meanwhile": {func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, finalizer) }, false},
		"not written":       {func(*corev1.PersistentVolume) {}, true},
		"written to another volume of the name": {func(pv *corev1.PersistentVolume) {
			pv.UID, pv.Finalizers = types.UID("another"), append(pv.Finalizers, finalizer)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Guards = &VolumeGuards{Newest: func(string) *corev1.PersistentVolume {
				pv := s.volume()
				c.newest(pv)
				return pv
			}}
			s.heard()
			s.attach(&Progress{})
			written := slices.ContainsFunc(s.heard(), func(said string) bool { return strings.Contains(said, "persistentvolumes") })
			if written != c.writes {
				t.Errorf("the PersistentVolume was written: %v, want %v", written, c.writes)
			}
		})
	}
}
