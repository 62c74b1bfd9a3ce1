package reconcile

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// ErrDisconnected means that a call was not made, or was cut off, because the connection to the driver has
// ended.
var ErrDisconnected = errors.New("the driver is not connected")

// IsDisconnected reports whether an error is ErrDisconnected.
func IsDisconnected(err error) bool { return errors.Is(err, ErrDisconnected) }

// settleTime is how long after a failed call the session may report that its connection has ended.
const settleTime = 100 * time.Millisecond

// call has do call a method of the driver for an item on the current session, if the lease allows it. While the call is in flight, the
// status shows it. It blocks until the driver has answered or ctx ends.
func (w *Worker) call(ctx context.Context, key queue.Key, method string, do func(context.Context, attach.Controller) error) error {
	s := w.Session()
	if err := w.mayCall(ctx); err != nil {
		return err
	}
	w.Queue.SetCall(key, queue.Flight{Method: method, Since: time.Now(), VolumeAttachment: key.Name})
	s.CallBegins(key)
	err := withDisconnected(s, do(csiclient.WithLastCheck(ctx, w.term.Confirm), s))
	w.Queue.SetCall(key, queue.Flight{})
	if err == nil || isAnswer(ctx, err) {
		s.Answered()
	}
	return err
}

// isAnswer reports whether the error of a call is an answer of the driver. After the deadline it counts as the hub's
// own: the driver has the same deadline, so that its answer comes too late.
func isAnswer(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	late := ctx.Err() != nil || ok && !time.Now().Before(deadline)
	return !late && !IsDisconnected(err) && !isFenced(err)
}

// mayCall returns an error, right before a call or a write, if the lease may not last for it. After a stop of
// the process it finds that the lease is too old, or that the deadline has passed.
func (w *Worker) mayCall(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	longest := max(0, time.Until(deadline)) // 0: there is no deadline
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.term.Begin(longest)
}

// isFenced reports whether a call or a write was not made because the lease was not renewed in time. Such an
// error says nothing about the volume.
func isFenced(err error) bool { return errors.Is(err, lease.ErrFenced) }

// withDisconnected adds ErrDisconnected to the error of a call whose connection has ended. The code Unavailable
// alone does not prove that: a driver can answer Unavailable too.
func withDisconnected(s Session, err error) error {
	if status.Code(err) != codes.Unavailable {
		return err
	}
	select {
	case <-s.Ended().Done():
		return errors.Join(ErrDisconnected, err)
	case <-time.After(settleTime):
		return err
	}
}
