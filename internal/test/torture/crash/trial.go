package crash

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Case is one scenario, with the point where the process is killed in it.
type Case struct {
	Scenario Scenario
	Point    *Point // nil: it is not killed
	// Once has how often each call succeeds without a crash, with its teardown. It is not used without a Point.
	Once map[string]int
}

func (c Case) String() string {
	if c.Point == nil {
		return c.Scenario.Name + " without a crash"
	}
	return fmt.Sprintf("%s, killed %s", c.Scenario.Name, c.Point)
}

// trial is a case with a driver and objects of its own.
type trial struct {
	Case
	key     string
	cluster *testbed.Cluster
	backend *fakecsi.Backend
	tapes   [2]*tape // by process
	seen    *testbed.Watcher[*storagev1.VolumeAttachment]
}

// victim returns the index of the process that is killed.
func (c Case) victim() int {
	if c.Scenario.Ending == TakenOver {
		return 1
	}
	return 0
}

func newTrial(c Case, key string, cluster *testbed.Cluster, seen *testbed.Watcher[*storagev1.VolumeAttachment]) (*trial, error) {
	t := &trial{Case: c, key: key, cluster: cluster, seen: seen}
	for i := range t.tapes {
		t.tapes[i] = newTape(nil)
		t.tapes[i].attachments = t.named(c.Scenario.attachments)
	}
	t.tapes[c.victim()].point = c.Point
	var err error
	t.backend, err = fakecsi.New(fakecsi.Options{Name: key + suffix})
	return t, err
}

// named returns attachments with the names of this trial's objects.
func (t *trial) named(attachments map[string]attachment) map[string]attachment {
	named := map[string]attachment{}
	for va, c := range attachments {
		n := attachment{volume: t.name(c.volume)}
		for _, node := range c.nodes {
			n.nodes = append(n.nodes, t.name(node))
		}
		named[t.name(va)] = n
	}
	return named
}

func (t *trial) name(own string) string { return t.key + "-" + own }
func (t *trial) driver() string         { return t.key + suffix }

func (t *trial) client() kubernetes.Interface { return t.cluster.Client() }

// make makes the objects that the scenario begins with.
func (t *trial) make(ctx context.Context) error {
	objects := []testbed.Object{t.csiNode("n1", "id1"), t.csiNode("n2", "id2")}
	for _, v := range t.Scenario.volumes {
		objects = append(objects, testbed.PersistentVolume{Name: t.name(v), Driver: t.driver()})
	}
	if err := t.cluster.Create(ctx, objects...); err != nil {
		return err
	}
	if t.Scenario.setup == nil {
		return nil
	}
	return t.Scenario.setup(ctx, t)
}

func (t *trial) csiNode(node, id string) testbed.CSINode {
	return testbed.CSINode{Node: t.name(node), Drivers: map[string]string{t.driver(): t.name(id)}}
}

func (t *trial) attachment(va string) testbed.VolumeAttachment {
	return testbed.VolumeAttachment{Name: t.name(va), Driver: t.driver()}
}

func (t *trial) attach(ctx context.Context, va, volume, node string) error {
	a := t.attachment(va)
	a.Node, a.PersistentVolume = t.name(node), t.name(volume)
	return t.cluster.Create(ctx, a)
}

func (t *trial) detach(ctx context.Context, va string) error {
	return t.cluster.Delete(ctx, t.attachment(va))
}

func (t *trial) deleteVolume(ctx context.Context, volume string) error {
	return t.cluster.Delete(ctx, testbed.PersistentVolume{Name: t.name(volume)})
}

// deleteWithoutDetach removes the finalizers of a VolumeAttachment and deletes it.
func (t *trial) deleteWithoutDetach(ctx context.Context, va string) error {
	_, err := t.client().StorageV1().VolumeAttachments().Patch(ctx, t.name(va), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return t.detach(ctx, va)
}

// register gives a node another ID.
func (t *trial) register(ctx context.Context, node, id string) error {
	// Drivers of a CSINode may be added and removed, but not changed.
	for _, drivers := range []map[string]string{{}, t.csiNode(node, id).Drivers} {
		now, err := t.client().StorageV1().CSINodes().Get(ctx, t.name(node), metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Spec = testbed.CSINode{Node: t.name(node), Drivers: drivers}.Build().Spec
		if _, err := t.client().StorageV1().CSINodes().Update(ctx, now, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) waitAttached(ctx context.Context, va string) error {
	return t.seen.WaitForOne(ctx, "attached", t.name(va), func(va *storagev1.VolumeAttachment, ok bool) bool { return ok && va.Status.Attached })
}

func (t *trial) waitAttachError(ctx context.Context, va string) error {
	return t.seen.WaitForOne(ctx, "refused", t.name(va), func(va *storagev1.VolumeAttachment, ok bool) bool { return ok && va.Status.AttachError != nil })
}

// waitUntil asks again and again until something holds. what says for the error what it is.
func waitUntil(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		}
	}
	return nil
}
