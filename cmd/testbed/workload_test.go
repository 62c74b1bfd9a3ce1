package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWorkloadIsSpreadOverDriversAndNodes(t *testing.T) {
	w := newWorkload(behaviours[:2], 5, 2)
	fast, slow := behaviours[0].driver(), behaviours[1].driver()
	want := []volume{
		{"fast-1", fast, "node-1"}, {"slow-1", slow, "node-1"},
		{"fast-2", fast, "node-2"}, {"slow-2", slow, "node-2"},
		{"fast-3", fast, "node-1"},
	}
	if diff := cmp.Diff(want, w.volumes, cmp.AllowUnexported(volume{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{fast: 3, slow: 2}, w.counts()); diff != "" {
		t.Error(diff)
	}
}

func TestNodesHaveAllOnlyWhenEachNamesItsOwnVolumes(t *testing.T) {
	w := newWorkload(behaviours[:1], 2, 2) // fast-1 on node-1, fast-2 on node-2
	node := func(name string, volumes ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, v := range volumes {
			unique := corev1.UniqueVolumeName("kubernetes.io/csi/fast.demo.csi.example.com^" + v)
			n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: unique})
		}
		return n
	}
	tests := []struct {
		name  string
		nodes []*corev1.Node
		want  bool
	}{
		{"all", []*corev1.Node{node("node-1", "fast-1"), node("node-2", "fast-2")}, true},
		{"and one more", []*corev1.Node{node("node-1", "fast-1", "fast-9"), node("node-2", "fast-2")}, true},
		{"one missing", []*corev1.Node{node("node-1", "fast-1"), node("node-2")}, false},
		{"on the wrong nodes", []*corev1.Node{node("node-1", "fast-2"), node("node-2", "fast-1")}, false},
		{"a node missing", []*corev1.Node{node("node-1", "fast-1", "fast-2")}, false},
	}
	for _, tt := range tests {
		if got := w.onNodes(tt.nodes); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestOthersAreAttachedWhileOneDriverHangs(t *testing.T) {
	w := newWorkload(behaviours[:2], 4, 1)
	fast, slow := behaviours[0].driver(), behaviours[1].driver()
	va := func(driver string, attached, deleting bool) *storagev1.VolumeAttachment {
		va := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: driver}, Status: storagev1.VolumeAttachmentStatus{Attached: attached}}
		if deleting {
			va.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return va
	}
	tests := []struct {
		name string
		all  []*storagev1.VolumeAttachment
		want bool
	}{
		{"all but the driver's", []*storagev1.VolumeAttachment{va(fast, true, false), va(fast, true, false), va(slow, false, false)}, true},
		{"one not there yet", []*storagev1.VolumeAttachment{va(fast, true, false)}, false},
		{"one not attached", []*storagev1.VolumeAttachment{va(fast, true, false), va(fast, false, false)}, false},
		{"one being deleted", []*storagev1.VolumeAttachment{va(fast, true, false), va(fast, true, true)}, false},
		{"one of the driver's attached too", []*storagev1.VolumeAttachment{va(fast, true, false), va(fast, true, false), va(slow, true, false)}, false},
		{"none", nil, false},
	}
	for _, tt := range tests {
		if got := w.attachedBut(slow)(tt.all); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestDriversFileOfTheCastIsValid(t *testing.T) {
	w := testbed.World{Dir: t.TempDir()}
	for _, r := range behaviours {
		w.Drivers = append(w.Drivers, &testbed.Driver{Name: r.driver(), Socket: "/tmp/a b/" + r.short + ".sock"})
	}
	if err := w.WriteConfig(w.Drivers, configDefaults(0), settings); err != nil {
		t.Fatal(err)
	}
	configs, err := registry.ParseManifestFile(w.ConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	drivers := configs[0].Drivers()
	for _, r := range behaviours {
		d := drivers[r.driver()]
		if want := "/tmp/a b/" + r.short + ".sock"; d.Endpoint.Address() != want {
			t.Errorf("%s listens on %q, want %q", r.short, d.Endpoint.Address(), want)
		}
		if r.hangs && d.Timeout < time.Hour {
			t.Errorf("a call of %s is cut off after %v", r.short, d.Timeout)
		}
	}
	if len(drivers) != len(behaviours) {
		t.Errorf("%d drivers", len(drivers))
	}
}
