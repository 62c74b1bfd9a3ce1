package hub

import (
	"context"
	"errors"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
)

// settleTime is how long the end of a connection may take to show after a call has
// failed because of it.
const settleTime = 100 * time.Millisecond

// ControllerPublishVolume implements attach.Controller on the session of the moment.
func (l *leader) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s := l.session()
	if err := l.mayCall(ctx); err != nil {
		return nil, err
	}
	response, err := s.ControllerPublishVolume(csiclient.WithLastCheck(ctx, l.term.Confirm), req)
	return response, away(s, err)
}

// ControllerUnpublishVolume implements attach.Controller on the session of the moment.
func (l *leader) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	s := l.session()
	if err := l.mayCall(ctx); err != nil {
		return nil, err
	}
	response, err := s.ControllerUnpublishVolume(csiclient.WithLastCheck(ctx, l.term.Confirm), req)
	return response, away(s, err)
}

// mayCall is the last thing before a call or a write: whether the lease lasts for it. A process
// that was paused on the way here finds that its lease is too old, or that the deadline
// of the call has passed, and makes none.
func (l *leader) mayCall(ctx context.Context) error {
	longest := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		longest = time.Until(deadline)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.term.Begin(longest)
}

// isFenced says that something was not done because the lease was not renewed in time.
// It says nothing about the volume.
func isFenced(err error) bool { return errors.Is(err, lease.ErrFenced) }

// away tells a driver that says Unavailable from one whose connection has ended.
func away(s *liveSession, err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
	}
	if s.ended.Load() {
		return errors.Join(errAway, err)
	}
	settle := time.NewTimer(settleTime)
	defer settle.Stop()
	select {
	case <-s.Done():
		return errors.Join(errAway, err)
	case <-settle.C:
		return err
	}
}
