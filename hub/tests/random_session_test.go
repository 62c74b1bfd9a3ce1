package tests

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// connect connects a process to the driver, as csiclient does: a driver that is not ready is not connected to.
func (p *process) connect(ctx context.Context, _ registry.Driver) (hubdriver.Session, error) {
	t := p.replica.trial
	s := &trialSession{backendSession: newBackendSession(t.backend), process: p}
	s.lost, s.lose = context.WithCancel(p.cut)
	if err := s.Probe(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	refused := t.refused // since, while the Probe was in flight
	t.mu.Unlock()
	if refused {
		return nil, errGone
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions = append(p.sessions, s)
	return s, nil
}

// trialSession is a connection of a process to the driver.
type trialSession struct {
	*backendSession
	process *process
	lost    context.Context // ends when the connection breaks
	lose    func()
}

var errGone = grpcstatus.Error(codes.Unavailable, "the connection has ended")

// over calls f with a context that ends with the connection.
func (s *trialSession) over(ctx context.Context, f func(context.Context) error) error {
	t := s.process.replica.trial
	t.mu.Lock()
	refused := t.refused
	t.mu.Unlock()
	if refused || s.lost.Err() != nil {
		return errGone
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.lost, cancel)()
	err := f(ctx)
	if s.lost.Err() != nil {
		return errGone
	}
	return err
}

func (s *trialSession) Probe(ctx context.Context) error {
	return s.over(ctx, s.backendSession.Probe)
}

func (s *trialSession) ListVolumes(ctx context.Context, pageSize int) (published csiclient.Published, took time.Duration, err error) {
	err = s.over(ctx, func(ctx context.Context) (err error) {
		published, took, err = s.backendSession.ListVolumes(ctx, pageSize)
		return err
	})
	return published, took, err
}

func (s *trialSession) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (response *csi.ControllerPublishVolumeResponse, err error) {
	err = s.call(ctx, safety.Publish, r.VolumeId, r.NodeId, r.GetVolumeCapability().GetAccessMode().GetMode(), func(ctx context.Context) (err error) {
		response, err = s.Backend.ControllerPublishVolume(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (s *trialSession) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	err := s.call(ctx, safety.Unpublish, r.VolumeId, r.NodeId, 0, func(ctx context.Context) error {
		_, err := s.Backend.ControllerUnpublishVolume(ctx, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// call makes a call that the rules allow. Calls that have begun go on after Close.
func (s *trialSession) call(ctx context.Context, m safety.Method, volume, nodeID string, mode csi.VolumeCapability_AccessMode_Mode, f func(context.Context) error) error {
	t := s.process.replica.trial
	if s.Ended().Err() != nil {
		return errGone
	}
	return s.over(ctx, func(ctx context.Context) error {
		c := safety.Call{Method: m, Place: safety.Place{Driver: virtualDriver, Volume: volume, Node: nodeID}}
		t.say("  %s: %v", s.process.name, c)
		if !t.checkCall(c, mode) {
			<-ctx.Done() // virtual time stands still while calls are made without a pause
		}
		err := f(ctx)
		t.say("  %s: %v: %v", s.process.name, c, grpcstatus.Code(err))
		return err
	})
}
