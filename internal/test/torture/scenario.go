package torture

import (
	"context"
	"errors"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// scenario is something that a hub does for a driver, in which it may be killed. The driver has the volumes v0 and v1, with a
// pod each.
type scenario struct {
	name     string
	settings string                              // of the driver, in drivers.yaml
	setup    func(context.Context, *trial) error // its first state
	trigger  func(context.Context, *trial) error // begins what is counted
	steps    []string                            // all that the process does then

	// While the process works, what it has not noticed yet may be so: a trigger makes the storage lose an attachment, or
	// removes a VolumeAttachment whose volume stays attached.
	untrue bool
}

// Steps, as a trial names them.
const (
	patchPV    = "patch persistentvolumes "
	patchVA    = "patch volumeattachments v0-p0."
	publishV0  = "ControllerPublishVolume v0 "
	unpublish0 = "ControllerUnpublishVolume v0 id-of-node0"
)

const listed = "drift: {interval: 1s, unexpected: detach}"

var scenarios = []scenario{
	{name: "attach", setup: nothingBefore, trigger: func(ctx context.Context, t *trial) error { return t.pods[0].ask(ctx, "node0") },
		steps: []string{patchPV + "v0", patchVA + "node0", publishV0 + "id-of-node0", patchVA + "node0 status"}},
	{name: "detach", setup: attached, trigger: drop, steps: []string{unpublish0, patchVA + "node0"}},
	{name: "move", setup: attached, trigger: func(ctx context.Context, t *trial) error {
		return errors.Join(drop(ctx, t), t.pods[0].ask(ctx, "node1"))
	},
		steps: []string{unpublish0, patchVA + "node0", patchVA + "node1", publishV0 + "id-of-node1", patchVA + "node1 status"}},
	{name: "drift", setup: attached, settings: listed, untrue: true, trigger: func(_ context.Context, t *trial) error {
		return t.backend().Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: t.pods[0].volume.name}}})
	}, steps: []string{publishV0 + "id-of-node0", patchVA + "node0 status"}},
	// Without its VolumeAttachment, another process finds the volume in the driver's list alone.
	{name: "dangling", setup: attached, settings: listed, untrue: true, trigger: func(ctx context.Context, t *trial) error {
		_, err := t.pods[0].takeFinalizer(ctx)
		return errors.Join(err, drop(ctx, t))
	}, steps: []string{unpublish0, patchVA + "node0"}},
	{name: "deletion", setup: attached, trigger: func(ctx context.Context, t *trial) error {
		t.pods[0].volume.gone.Store(true)
		return errors.Join(t.Cluster.Delete(ctx, t.pods[0].volume.object()), drop(ctx, t))
	}, steps: []string{unpublish0, patchVA + "node0", patchPV + "v0"}},
}

func nothingBefore(context.Context, *trial) error { return nil }

// attached is how most scenarios begin.
func attached(ctx context.Context, t *trial) error {
	p := t.pods[0]
	if err := p.ask(ctx, "node0"); err != nil {
		return err
	}
	return t.Attachments.WaitForOne(ctx, "attached", p.attachment("node0").Name, func(va *storagev1.VolumeAttachment, ok bool) bool { return ok && va.Status.Attached })
}

// drop deletes the VolumeAttachment of the first pod, and does not wait until it is gone.
func drop(ctx context.Context, t *trial) error {
	now, _ := t.pods[0].current()
	t.pods[0].set(func() { t.pods[0].asked = asked{} })
	return t.Cluster.Delete(ctx, t.pods[0].attachment(now.node))
}
