package tests

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Each Probe that failed had all VolumeAttachments compared again, and their objects read.
func TestObservedDriverThatIsNotReadyCostsNoReads(t *testing.T) {
	var unready atomic.Bool
	probe := func(context.Context) error {
		if unready.Load() {
			return csiclient.ErrNotReady
		}
		return nil
	}
	dial := func(ctx context.Context, _ int) (*memorySession, error) {
		if err := probe(ctx); err != nil {
			return nil, err
		}
		return &memorySession{probe: probe}, nil
	}
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		w.value.Mode = registry.ModeObserve
		w.serve()
		if err := testbed.NewCluster(w.kube).Create(t.Context(),
			testbed.CSINode{Node: "node", Drivers: map[string]string{memoryDriver: "id"}},
			testbed.VolumeAttachment{Name: "v", Driver: memoryDriver, Node: "node", PersistentVolume: "gone"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the VolumeAttachment is tried with its longest backoff
		synctest.Wait()
		before := w.api.Count("get", "persistentvolumes")
		time.Sleep(time.Hour)
		well := w.api.Count("get", "persistentvolumes") - before
		unready.Store(true)
		time.Sleep(time.Hour)
		if got := w.api.Count("get", "persistentvolumes") - before - well; got > well+1 {
			t.Errorf("%d reads in an hour in which the driver is not ready, %d in one in which it is", got, well)
		}
	})
}
