package testbed

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWorldHasAHubThatAttachesToItsNodes(t *testing.T) {
	ctx := needsControlPlane(t)
	hub, err := SharedBinary(ctx, BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	w := WorldForTest(t, ctx, WorldOptions{
		Hub: hub, Drivers: []fakecsi.Options{{Name: "world.example.com"}}, Nodes: []string{"world-n1"},
	})
	if err := w.WriteConfig(w.Drivers, "{workers: 7}", func(*Driver) string { return "timeout: 9s" }); err != nil {
		t.Fatal(err)
	}
	configs, err := registry.ParseManifestFile(w.ConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	if d := configs[0].Drivers()["world.example.com"]; d.Workers != 7 || d.Timeout.Seconds() != 9 || d.Endpoint.Address() != w.Drivers[0].Socket {
		t.Errorf("drivers.yaml has %+v", d)
	}
	h, err := w.StartHub(ctx, HubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.WaitReady(ctx, 1); err != nil {
		t.Fatal(err)
	}
	va := VolumeAttachment{Name: "world-va", Driver: "world.example.com", Node: "world-n1", PersistentVolume: "world-pv"}
	if err := w.Cluster.Create(ctx, PersistentVolume{Name: "world-pv", Driver: "world.example.com"}); err != nil {
		t.Fatal(err)
	}
	made, err := w.Cluster.Attach(ctx, va)
	if err != nil {
		t.Fatal(err)
	}
	err = w.Attachments.WaitForOne(ctx, "attached", va.Name, func(now *storagev1.VolumeAttachment, exists bool) bool {
		return exists && now.Status.Attached
	})
	if err != nil {
		t.Fatal(err)
	}
	if !w.Drivers[0].Backend.Books().IsAttached("world-pv", NodeID("world-n1")) {
		t.Error("the driver does not have the volume on the node")
	}
	if err := w.Cluster.Detach(ctx, w.Attachments, made.Name, made.UID); err != nil {
		t.Fatal(err)
	}
	if left := w.Drivers[0].Backend.Books().Attached; len(left) > 0 {
		t.Errorf("still attached: %v", left)
	}
}
