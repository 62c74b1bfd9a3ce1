package tests

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// A Pod waits for ever: somebody attached its volume to another node by hand, and Kubernetes knows nothing of that. These are
// the requests that kubectl makes for diagnosis.DetachCommands.
func TestVolumeThatWasAttachedBehindTheClustersBackIsFreedByTheCommandsForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	// A try before the volume is free would be refused too. The detach ends the backoff.
	w.set(driver, func(s *registry.Settings) { s.Retry.Initial, s.Retry.Max = time.Hour, time.Hour })
	node, other := w.node("n", driver), w.node("o", driver)
	va := w.volume("v", driver, node)
	w.turn(backend, fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: "v", Node: "id-o"}}})
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "is refused", func(va *storagev1.VolumeAttachment) bool {
		return va.Status.AttachError != nil && strings.Contains(va.Status.AttachError.Message, "published to another node")
	})

	commands := diagnosis.DetachCommands(driver, other, va.PersistentVolume)
	create, _, _ := strings.Cut(commands[0], " | kubectl create")
	input, err := exec.CommandContext(w.ctx, "sh", "-c", create).Output()
	if err != nil {
		t.Fatal(err)
	}
	var freeing storagev1.VolumeAttachment
	if err := json.Unmarshal(input, &freeing); err != nil {
		t.Fatal(err)
	}
	api := w.plane.Clientset().StorageV1().VolumeAttachments()
	if _, err := api.Create(w.ctx, &freeing, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForOne(freeing.Name, "is attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
	if err := api.Delete(w.ctx, freeing.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForOne(va.Name, "is attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
	if b := backend.Books(); !b.IsAttached("v", "id-n") || b.IsAttached("v", "id-o") || b.ViolationCount > 0 {
		t.Errorf("the driver has %v attached, violations %+v", b.Attached, b.Violations)
	}
}
