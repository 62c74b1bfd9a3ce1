package reconcile

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// heldTerm returns a term of a lease, and a function that ends it, which blocks until the lease has been released.
func heldTerm(t *testing.T, kube kubernetes.Interface) (term *lease.Term, end func()) {
	t.Helper()
	leases, err := lease.New(lease.Options{Kube: kube, Identity: "hub", Namespace: "hub", Alone: true,
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 100 * time.Millisecond})
	must(t, err)
	held, letGo, ended := make(chan *lease.Term), make(chan struct{}), make(chan error)
	go func() {
		ended <- leases.Hold(t.Context(), lease.Candidacy{Driver: routedDriver, Lease: lease.Name{Namespace: "hub", Name: "lease"},
			Serve: func(_ context.Context, term *lease.Term) error { held <- term; <-letGo; return nil }})
	}()
	return <-held, func() {
		t.Helper()
		close(letGo)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// A worker that was paused goes on when its lease is over and another process works for the driver.
func TestWorkerWhoseLeaseIsOverNeitherCallsNorWrites(t *testing.T) {
	inExecution(t, nil, func(x *executing) {
		during := x.term
		after, end := heldTerm(x.t, x.kube)
		end()
		x.term = after
		if err := x.look(); !isFenced(err) || len(x.recording.calls) > 0 || len(x.get().Finalizers) > 0 {
			t.Errorf("before the finalizers: %v, calls %v, finalizers %v", err, x.recording.calls, x.get().Finalizers)
		}
		x.term = during
		x.recording.answer = func(string) error { x.term = after; return nil }
		if err := x.look(); !isFenced(err) || x.get().Status.Attached {
			t.Errorf("after the call: %v, %+v", err, x.get().Status)
		}
		x.delete()
		called := len(x.recording.calls)
		if err := x.look(); !isFenced(err) || len(x.recording.calls) > called || len(x.get().Finalizers) == 0 {
			t.Errorf("before the detach: %v, calls %v, finalizers %v", err, x.recording.calls, x.get().Finalizers)
		}
	})
}

// pausing is a session whose process is paused right after the hub has asked whether a call may begin.
type pausing struct {
	Session
	pause func()
}

func (p *pausing) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	p.pause()
	return p.Session.ControllerPublishVolume(ctx, r)
}

func TestCallIsNotSentWhenTheLeaseEndsBeforeItLeavesTheProcess(t *testing.T) {
	dir, err := os.MkdirTemp("", "fenced") // short enough for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	endpoint := "unix://" + dir + "/s"
	backend, err := fakecsi.New(fakecsi.Options{Name: routedDriver})
	must(t, err)
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: endpoint})
	must(t, err)
	must(t, server.Start())
	t.Cleanup(server.Crash)
	session, err := csiclient.Connect(t.Context(), registry.Driver{Name: routedDriver, Endpoint: registry.Endpoint(endpoint)}, nil)
	must(t, err)
	t.Cleanup(session.Close)
	api := fakekube.New()
	d := routedOn(t, api.Client())
	var end func()
	d.term, end = heldTerm(t, api.Client())
	paused := &pausing{connected{Session: session}, func() {}}
	d.connectTo(paused)
	publish := func() error {
		_, err := d.attacher(queue.AttachmentKey("va")).Publish(t.Context(), attach.Plan{Publish: &csi.ControllerPublishVolumeRequest{VolumeId: "v", NodeId: "n",
			VolumeCapability: &csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			}}}, nil)
		return err
	}
	must(t, publish())
	paused.pause = end
	if err := publish(); err == nil || backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun != 1 {
		t.Errorf("%v: the call was sent", err)
	}
}
