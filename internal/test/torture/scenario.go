package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// scenario is something that a hub does for a driver, in which it may be killed. The driver has the volumes v0 and v1, with a
// pod each.
type scenario struct {
	name     string
	settings string                              // of the driver, in drivers.yaml
	setup    func(context.Context, *trial) error // nil: v0 is attached to the first node
	trigger  func(context.Context, *trial) error // begins what is counted
	steps    []string                            // that each run without a crash has

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
	{name: "detach", trigger: drop, steps: []string{unpublish0, patchVA + "node0"}},
	{name: "move", trigger: func(ctx context.Context, t *trial) error {
		return errors.Join(drop(ctx, t), t.pods[0].ask(ctx, "node1"))
	},
		steps: []string{unpublish0, patchVA + "node0", patchVA + "node1", publishV0 + "id-of-node1", patchVA + "node1 status"}},
	{name: "drift", settings: listed, untrue: true, trigger: func(_ context.Context, t *trial) error {
		return t.backend().Set(fakecsi.Knobs{LoseAttachments: []fakecsi.VolumeNode{{Volume: t.pods[0].volume.name}}})
	}, steps: []string{publishV0 + "id-of-node0", patchVA + "node0 status"}},
	// Without its VolumeAttachment, another process finds the volume in the driver's list alone.
	{name: "dangling", settings: listed, untrue: true, trigger: func(ctx context.Context, t *trial) error {
		_, err := t.pods[0].takeFinalizer(ctx)
		return errors.Join(err, drop(ctx, t))
	}, steps: []string{unpublish0}},
	{name: "deletion", trigger: func(ctx context.Context, t *trial) error {
		t.pods[0].volume.gone.Store(true)
		return errors.Join(t.Cluster.Delete(ctx, t.pods[0].volume.object()), drop(ctx, t))
	}, steps: []string{unpublish0, patchVA + "node0", patchPV + "v0"}},
	{name: "node ID", settings: "retry: {initial: 5s, max: 10s}", setup: answerErrors, trigger: otherNodeID,
		steps: []string{"ControllerUnpublishVolume v0 id-of-own", patchVA + "own", publishV0 + "id9", patchVA + "own status"}},
	{name: "handover", trigger: handOver,
		steps: []string{patchPV + "v1", unpublish0, "ControllerPublishVolume v1 id-of-node0", patchVA + "node0", "patch volumeattachments v1-p0.node0 status"}},
}

func nothingBefore(context.Context, *trial) error { return nil }

// attached is how most scenarios begin.
func attached(ctx context.Context, t *trial) error {
	return t.asked(ctx, "node0", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
}

// asked lets the first pod ask for its volume, and waits for something.
func (t *trial) asked(ctx context.Context, node string, holds func(*storagev1.VolumeAttachment) bool) error {
	p := t.pods[0]
	if err := p.ask(ctx, node); err != nil {
		return err
	}
	return t.Attachments.WaitForOne(ctx, "in its first state", p.attachment(node).Name, func(va *storagev1.VolumeAttachment, ok bool) bool { return ok && holds(va) })
}

// drop deletes the VolumeAttachment of the first pod, and does not wait until it is gone.
func drop(ctx context.Context, t *trial) error {
	now, _ := t.pods[0].current()
	t.pods[0].set(func() { t.pods[0].asked = asked{} })
	return t.Cluster.Delete(ctx, t.pods[0].attachment(now.node))
}

// ownNode is a node with the driver of the trial alone, so that its ID can change.
func (t *trial) ownNode() string { return fmt.Sprintf("own%d", t.index) }

// answerErrors lets the storage attach to the node ID of a node, and answer with an error, each time.
func answerErrors(ctx context.Context, t *trial) error {
	id := testbed.NodeID(t.ownNode())
	err := errors.Join(t.Cluster.Create(ctx, testbed.CSINode{Node: t.ownNode(), Drivers: map[string]string{driverName(t.index): id}}),
		t.backend().Set(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Node: id, Code: codes.Internal, AfterEffect: true}}}))
	if err != nil {
		return err
	}
	return t.asked(ctx, t.ownNode(), func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
}

// otherNodeID gives the node another ID.
func otherNodeID(ctx context.Context, t *trial) error {
	t.mu.Lock()
	t.nodeIDs[t.ownNode()] = "id9"
	t.mu.Unlock()
	// Drivers of a CSINode may be added and removed, but not changed.
	for _, drivers := range []map[string]string{{}, {driverName(t.index): "id9"}} {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			now, err := t.client.StorageV1().CSINodes().Get(ctx, t.ownNode(), metav1.GetOptions{})
			if err == nil {
				now.Spec = testbed.CSINode{Node: t.ownNode(), Drivers: drivers}.Build().Spec
				_, err = t.client.StorageV1().CSINodes().Update(ctx, now, metav1.UpdateOptions{})
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// handOver lets the lease go while a publish and an unpublish are in flight.
func handOver(ctx context.Context, t *trial) error {
	var hangs []fakecsi.Hang
	for _, m := range attachMethods {
		if t.point == nil || t.hang().Method != m { // the point hangs on its own
			hangs = append(hangs, fakecsi.Hang{Method: m})
		}
	}
	err := errors.Join(t.backend().Set(fakecsi.Knobs{Hang: hangs}), drop(ctx, t), t.pods[1].ask(ctx, "node0"))
	if err != nil {
		return err
	}
	inFlight, cancel := context.WithTimeout(ctx, 5*time.Second) // the point may be before that
	defer cancel()
	_ = t.backend().Wait(inFlight, func(b fakecsi.Books) bool { return b.AttachInFlight.Now == 2 })
	return errors.Join(t.config.set(func(s *settings) { s.mode = "paused" }, t.index), t.backend().Set(fakecsi.Knobs{Release: hangs}))
}
