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

// settleTime is how long after a failed call the end of its connection may become known.
const settleTime = 100 * time.Millisecond

// ControllerPublishVolume implements attach.Controller on the session of the moment.
func (l *leader) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s := l.session()
	if err := l.mayCall(ctx); err != nil {
		return nil, err
	}
	response, err := s.ControllerPublishVolume(csiclient.WithLastCheck(ctx, l.term.Confirm), req)
	return response, withAway(s, err)
}

// ControllerUnpublishVolume implements attach.Controller on the session of the moment.
func (l *leader) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	s := l.session()
	if err := l.mayCall(ctx); err != nil {
		return nil, err
	}
	response, err := s.ControllerUnpublishVolume(csiclient.WithLastCheck(ctx, l.term.Confirm), req)
	return response, withAway(s, err)
}

// mayCall reports, right before a call or a write, an error if the lease may not last for it. A process
// that was stopped before finds here that its lease is too old, or that the deadline has passed.
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

// isFenced reports whether an error says that a call or a write was not made because the lease was not
// renewed in time. The error says nothing about the volume.
func isFenced(err error) bool { return errors.Is(err, lease.ErrFenced) }

// withAway adds errAway to the error of a call that failed because the connection has ended: a driver
// whose connection lives can answer Unavailable too.
func withAway(s *liveSession, err error) error {
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
