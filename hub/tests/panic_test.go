package tests

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// fragileSession panics on the first publish of one volume.
type fragileSession struct {
	hubdriver.Session
	volume string
	panics *atomic.Int32
}

func (s fragileSession) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if req.VolumeId == s.volume && s.panics.Add(1) == 1 {
		panic("odd answer")
	}
	return s.Session.ControllerPublishVolume(ctx, req)
}

func TestPanicInOneDriverRestartsThatDriverAndNoOther(t *testing.T) {
	w := newWorld(t)
	fragile, backend := w.driver("fragile", fakecsi.Options{})
	steady, steadyBackend := w.driver("steady", fakecsi.Options{})
	var panics atomic.Int32
	w.options.Connect = func(ctx context.Context, d registry.Driver) (hubdriver.Session, error) {
		s, err := csiclient.Connect(ctx, d, nil)
		if err != nil || d.Name != fragile {
			return s, err
		}
		return fragileSession{s, "odd", &panics}, nil
	}
	node := w.node("n", fragile, steady)
	before, odd := w.volume("before", fragile, node), w.volume("odd", fragile, node)
	w.start()
	w.create(before)
	w.waitForOne(before.Name, "attached", isAttached)
	other := w.volume("other", steady, node)
	w.create(odd, other)
	w.waitForOne(other.Name, "attached", isAttached)
	w.waitForOne(odd.Name, "attached", isAttached)
	if got := panics.Load(); got != 2 {
		t.Errorf("%d publishes of the odd volume, want 2: one that panicked, one after the restart", got)
	}
	if got := steadyBackend.Books().Methods[fakecsi.GetPluginInfo].Ended; got != 1 {
		t.Errorf("the steady driver was connected to %d times, want once", got)
	}
	if got := backend.Books().Methods[fakecsi.GetPluginInfo].Ended; got != 2 {
		t.Errorf("the fragile driver was connected to %d times, want twice", got)
	}
	w.delete(before, odd, other)
	w.waitNoneLeft()
	w.checkBooks(map[string]int{})
}
