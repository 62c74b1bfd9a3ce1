package snapshot_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explore/snapshot"
)

// core is a Table with what refers to its entries and claims.
type core struct {
	Table   *volume.Table
	Running []*volume.Entry
	Claims  []*volume.Claim
	Objects map[string]*storagev1.VolumeAttachment
}

// tableRules are enough for all fields of a Table: a new field of a kind that cannot be copied makes the plan an error.
var tableRules = []snapshot.Rule{
	snapshot.Fresh("sync.Mutex", "volume.queue.wake"),
	snapshot.Share("volume.pauses", "*v1.SecretReference", "*v1.VolumeAttachment"),
	snapshot.Share("volume.Retries.Session", "volume.Retries.LastSession"),
	snapshot.Holds("list.Element.Value", &volume.Entry{}),
	snapshot.Zero("time.Time"),
	snapshot.Rank("volume.queue.steps", "volume.Entry.came", "volume.Entry.served", "volume.Entry.refusedAt", "volume.fullNode.fresh"),
	snapshot.Skip("volume.Entry.since", "volume.queue.looked", "volume.laneLoad.pace"),
	snapshot.NilIsEmpty("volume.queue.moved", "volume.queue.full", "volume.Volume.unowned"),
}

func attachment(volumeName, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volumeName + "-" + node, UID: types.UID("uid-" + volumeName + "-" + node), Finalizers: []string{"f"},
			Annotations: map[string]string{"a": "b"}},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volumeName}},
	}
}

// busy returns a Table with two volumes on two nodes each, of which so many entries run.
func busy(running int) *core {
	c := &core{Table: volume.NewTable("f"), Objects: map[string]*storagev1.VolumeAttachment{}}
	c.Table.Begin(10)
	c.Table.SetLimits(10, 2, true)
	c.Table.OpenLanes()
	for i := range 4 {
		va := attachment(fmt.Sprintf("pv%d", i/2), fmt.Sprintf("node%d", i%2))
		c.Objects[va.Name] = va
		claim := c.Table.Open(va)
		c.Table.Restore(claim, attach.Record{Target: attach.Target{VolumeHandle: "handle-" + claim.PersistentVolume, NodeID: claim.Node},
			SecretRef: &corev1.SecretReference{Name: "secret"}, SecretKnown: true})
		c.Claims = append(c.Claims, claim)
		c.add(va.Name)
	}
	if running > 0 {
		c.start(running)
	}
	return c
}

func (c *core) add(name string) {
	va := c.Objects[name]
	c.Table.Add(volume.ClaimKey(name), volume.AttachLane, volume.Place{Node: va.Spec.NodeName,
		Target: attach.Target{VolumeHandle: "handle-" + attach.VolumeName(va), NodeID: va.Spec.NodeName}})
}

// start lets Run start so many entries.
func (c *core) start(n int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.Table.Run(ctx, func(e *volume.Entry) {
		c.Running = append(c.Running, e)
		if n--; n == 0 {
			cancel()
		}
	})
}

func (c *core) text() string {
	text := fmt.Sprintf("running %d", len(c.Running))
	for name := range c.Objects {
		if view, ok := c.Table.Look(volume.ClaimKey(name)); ok {
			text += fmt.Sprintf("; %v %v", view.State, view.Wait.Kind)
		}
	}
	return text
}

func TestTableIsCopiedAndKeyed(t *testing.T) {
	p := plan[core](t, tableRules...)
	x := busy(1)
	before := string(p.Append(nil, x))
	if before != string(p.Append(nil, busy(1))) || before == string(p.Append(nil, busy(2))) || before == string(p.Append(nil, busy(0))) {
		t.Fatal("keys do not follow from what has happened")
	}
	y := p.Copy(x)
	if string(p.Append(nil, y)) != before {
		t.Fatal("the copy has another key")
	}
	y.Table.DoneFor(y.Running[0], volume.AttachLane, time.Hour)
	y.start(1)
	if len(y.Running) != 2 || y.Running[0].Key == y.Running[1].Key {
		t.Errorf("the copy started %v", y.Running)
	}
	if string(p.Append(nil, x)) != before {
		t.Error("what happens to the copy shows in the original")
	}
	again := p.Copy(x)
	again.Table.DoneFor(again.Running[0], volume.AttachLane, time.Hour)
	again.start(1)
	if !same(p, y, again) {
		t.Errorf("two copies of which the same has happened differ: %s and %s", y.text(), again.text())
	}
}

func TestTableIsCopiedByManyAtOnce(t *testing.T) {
	p := plan[core](t, tableRules...)
	x := busy(2)
	want := string(p.Append(nil, x))
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			for range 50 {
				y := p.Copy(x)
				if string(p.Append(nil, y)) != want {
					t.Error("the copy has another key")
				}
				y.Table.Done(y.Running[0])
			}
		})
	}
	done.Wait()
}

func BenchmarkTableCopy(b *testing.B) {
	p := snapshot.Must[core](tableRules...)
	x := busy(1)
	b.ReportAllocs()
	for b.Loop() {
		p.Copy(x)
	}
}

func BenchmarkTableKey(b *testing.B) {
	p := snapshot.Must[core](tableRules...)
	x := busy(1)
	key := p.Append(nil, x)
	b.ReportMetric(float64(len(key)), "bytes")
	b.ReportAllocs()
	for b.Loop() {
		key = p.Append(key[:0], x)
	}
}
