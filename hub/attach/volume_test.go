package attach

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
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
		pv         *Volume
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
		"no PersistentVolume, inline": {attachment(guarded, deleted, inline(&wholeVolume(modes(rwx)).Spec)), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := attaching.Decide(Inputs{VolumeAttachment: c.va, PersistentVolume: c.pv, CSINode: csiNode("id-1")})
			must(t, err)
			if (plan.Nodes != MultiNode) != c.singleNode {
				t.Errorf("single node %v, want %v", plan.Nodes != MultiNode, c.singleNode)
			}
		})
	}
}

// published is what is recorded of a call that published a volume, whether it has succeeded or not.
func published(t *testing.T, pv *Volume) Record {
	t.Helper()
	plan, err := attaching.Decide(Inputs{VolumeAttachment: attachment(), PersistentVolume: pv, CSINode: csiNode("id-1")})
	must(t, err)
	return plan.Record
}

// That a call of a attachment runs beside others as it was published is of package volume.
func TestCallRunsBesideOtherNodesOnlyIfTheModeIsSoNowAndAsPublished(t *testing.T) {
	one, many := volume(), volume(modes(corev1.ReadWriteMany))
	another := volume(modes(corev1.ReadWriteMany), handle("vol-2"))
	byOthers := func(pv *Volume) Record {
		va := attachment(guarded, annotated(AnnotationNodeID, "id-1"), annotated(AnnotationVolumeHandle, "vol-1"))
		r, ok := attaching.Recorded(Inputs{VolumeAttachment: va, PersistentVolume: pv})
		if !ok {
			t.Fatal("nothing is recorded")
		}
		return r
	}
	for name, c := range map[string]struct {
		record Record
		now    *Volume // nil: it is gone
		want   bool
	}{
		"as before":                           {published(t, many), many, true},
		"one node, as before":                 {published(t, one), one, false},
		"was one node":                        {published(t, one), many, false},
		"is one node":                         {published(t, many), one, false},
		"was published by others":             {byOthers(many), many, true},
		"was published by others, then many":  {byOthers(one), many, false},
		"not published":                       {Record{}, many, false},
		"gone":                                {published(t, many), nil, true},
		"gone, one node":                      {published(t, one), nil, false},
		"gone, published by others":           {byOthers(nil), nil, false},
		"gone after it was published by them": {byOthers(many), nil, true},
		"another volume":                      {published(t, one), another, false},
		"another volume, was many":            {published(t, many), another, true},
		"another volume than by others":       {byOthers(another), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.record.SurelyMultiNode(c.now); got != c.want {
				t.Errorf("beside calls on other nodes: %v, want %v", got, c.want)
			}
		})
	}
}

func TestFinalizerOfAVolumeIsWrittenOnceForAttachesAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakekube.New()
		s := &scene{t: t, kube: api.Client(), name: "v"}
		if err := testbed.NewCluster(s.kube).Create(t.Context(), testbed.PersistentVolume{Name: s.name, Driver: driverName},
			testbed.VolumeAttachment{Name: s.name, Driver: driverName, Node: "node-1", PersistentVolume: s.name}); err != nil {
			t.Fatal(err)
		}
		w := Writer{Kube: s.kube, Written: s, FinalizerWrites: &singleflight.Group{}, Fence: func(context.Context) error { return nil }, Limit: func(context.Context) error {
			time.Sleep(time.Second) // until the others wait for this write
			return nil
		}}
		plan := s.plan(attaching)
		plan.AttachmentFinalizer = nil
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := w.AddFinalizers(t.Context(), plan); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := api.Count("patch", "persistentvolumes"); n != 1 {
			t.Errorf("the PersistentVolume was written %d times, want once", n)
		}
	})
}

func TestVolumeIsInUseByEachNameThatAKubeletGivesIt(t *testing.T) {
	const disk = "projects/UNSPECIFIED/zones/z/disks/d"
	for name, c := range map[string]struct {
		driver, handle string
		used           corev1.UniqueVolumeName
		want           bool
	}{
		"CSI":                   {"a.example.com", "v", "kubernetes.io/csi/a.example.com^v", true},
		"another volume":        {"a.example.com", "v", "kubernetes.io/csi/a.example.com^vv", false},
		"another driver":        {"a.example.com", "v", "kubernetes.io/csi/b.example.com^v", false},
		"migrated":              {gcePD, disk, "kubernetes.io/csi/" + gcePD + "^" + disk, true},
		"in-tree":               {gcePD, disk, "kubernetes.io/gce-pd/d", true},
		"in-tree, another disk": {gcePD, disk, "kubernetes.io/gce-pd/dd", false},
		"in-tree, with a path":  {"ebs.csi.aws.com", "vol-1", "kubernetes.io/aws-ebs/aws://z/vol-1", true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/x", c.used}}}
			if got := (Driver{Name: c.driver}).InUse(node, c.handle); got != c.want {
				t.Errorf("in use: %v, want %v", got, c.want)
			}
		})
	}
}
