package main

import (
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// No process sees that the VolumeAttachments vanish, and no process that lives has attached their volumes: only the
// storage knows.
func TestVolumesWhoseVolumeAttachmentsVanishWhileAllReplicasAreKilledAreDetached(t *testing.T) {
	t.Parallel()
	s := newScene(t, "dangling")
	r := newReplicas(s, 1, fakecsi.Latency{})
	s.config.WriteString("    drift: {interval: 1s, unexpected: detach}\n")
	driver := s.drivers[0]
	backend := r.backends[driver]
	first, second := r.start(s.plane.Kubeconfig()), r.start(s.plane.Kubeconfig())
	all := s.attachments(driver, 3)
	s.create(testbed.Node{Name: driver + "-node"}) // says that no volume is in use there
	s.create(all...)
	s.waitFor("all attached", testbed.AllAttached(len(all)))
	first.Kill()
	second.Kill()
	vanishing := all[:2]
	for _, va := range vanishing {
		name := va.(testbed.VolumeAttachment).Name
		if _, err := s.plane.Clientset().StorageV1().VolumeAttachments().Patch(s.ctx, name, types.JSONPatchType,
			[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.delete(vanishing...)
	s.waitFor("two gone", func(all []*storagev1.VolumeAttachment) bool { return len(all) == 1 })
	if n := len(backend.Books().Attached); n != 3 {
		t.Fatalf("%d volumes are attached while no hub runs, want 3", n)
	}
	// One of the volumes is wanted on another node at once.
	moved := vanishing[0].(testbed.VolumeAttachment)
	moved.Name, moved.Node = moved.Name+"-moved", driver+"-other"
	s.create(testbed.CSINode{Node: moved.Node, Drivers: map[string]string{driver: "other"}}, moved)
	third := r.start(s.plane.Kubeconfig())
	s.waitFor("attached elsewhere", func(all []*storagev1.VolumeAttachment) bool { return countAttached(all) == 2 })
	err := backend.Wait(s.ctx, func(b fakecsi.Books) bool { return len(b.Attached) == 2 })
	if err != nil {
		t.Fatalf("%v: attached are %v", err, backend.Books().Attached)
	}
	left := vanishing[1].(testbed.VolumeAttachment)
	if b := backend.Books(); !b.IsAttached(moved.PersistentVolume, "other") || len(b.Attached[left.PersistentVolume]) > 0 {
		t.Errorf("attached are %v", b.Attached)
	}
	for _, volume := range []string{moved.PersistentVolume, left.PersistentVolume} {
		events := s.eventsOn("PersistentVolume", volume, "DriftDetected")
		if !strings.Contains(events[0].Message, "without a VolumeAttachment; detaching it there") {
			t.Errorf("Event on %s: %s", volume, events[0].Message)
		}
	}
	s.checkExit(third)
}
