package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWorkloadIsSpreadOverDriversAndNodes(t *testing.T) {
	var got []string
	for _, v := range newWorkload(9, 2).volumes {
		got = append(got, v.name+" of "+v.driver+" on "+v.node)
	}
	want := []string{
		"fast-1 of fast.demo.csi.example.com on node-1", "slow-1 of slow.demo.csi.example.com on node-1",
		"flaky-1 of flaky.demo.csi.example.com on node-1", "hanging-1 of hanging.demo.csi.example.com on node-1",
		"fast-2 of fast.demo.csi.example.com on node-2", "slow-2 of slow.demo.csi.example.com on node-2",
		"flaky-2 of flaky.demo.csi.example.com on node-2", "hanging-2 of hanging.demo.csi.example.com on node-2",
		"fast-3 of fast.demo.csi.example.com on node-1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOthersAreAttachedWhileOneDriverHangs(t *testing.T) {
	const fast, slow = "fast.demo.csi.example.com", "slow.demo.csi.example.com"
	w := workload{volumes: []volume{{name: "fast-1", driver: fast}, {name: "fast-2", driver: fast}, {name: "slow-1", driver: slow}}}
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
	if err := w.WriteConfig(w.Drivers, configDefaults(time.Minute), settings); err != nil {
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
