package csiclient

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// filePollInterval is how often the files of a connection with TLS are looked at. A
// change is believed at the second look.
const filePollInterval = 10 * time.Second

func pollFiles() (<-chan time.Time, func()) {
	ticker := time.NewTicker(filePollInterval)
	return ticker.C, ticker.Stop
}

// followFiles ends the Session when the files that it was secured with have been
// replaced by others with which the driver can be reached: the owner connects anew
// with those. Calls in flight end on the old connection. Files that are not whole, or
// that the driver's side does not take, change nothing, so that what works goes on; but
// files that do not vouch for the driver any more end the Session in any case, since it
// would go on to send secrets. It returns when the Session is done.
func (s *Session) followFiles(ctx context.Context, d registry.Driver, used *tlsfiles.Material, poll func() (<-chan time.Time, func())) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a try does not outlive the Session
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	ticks, stop := poll()
	defer stop()
	follower := &rotation{driver: d, used: used, files: tlsfiles.NewFollower(used)}
	for {
		select {
		case <-s.done:
			return
		case <-ticks:
		}
		if follower.due(ctx) {
			s.finish() // first, so that who is refused a call knows why
			s.Close()
			return
		}
	}
}

// rotation finds out when the files of a connection are to be used instead of those
// that it was made with. It belongs to one goroutine.
type rotation struct {
	driver  registry.Driver
	used    *tlsfiles.Material // by the connection
	files   *tlsfiles.Follower
	next    *tlsfiles.Material // to be tried; nil if there is nothing new
	problem string             // that was logged last
}

// due looks at the files, and tries new ones on a connection of their own.
func (r *rotation) due(ctx context.Context) bool {
	found, err := r.files.Look()
	if found != nil {
		r.next = found
	}
	if err == nil && (r.next == nil || r.next.Same(r.used)) {
		return false
	}
	if err == nil {
		err = r.next.CheckTime(time.Now())
	}
	if err == nil {
		err = r.try(ctx)
		if _, untrusted := errors.AsType[x509.UnknownAuthorityError](err); err == nil || untrusted {
			return true
		}
	}
	if ctx.Err() == nil {
		r.complain(ctx, err)
	}
	return false
}

// complain logs a problem when it is another one than before.
func (r *rotation) complain(ctx context.Context, err error) {
	if err.Error() == r.problem {
		return
	}
	r.problem = err.Error()
	klog.FromContext(ctx).Info("Warning: the new TLS files cannot be used, the connection to the driver goes on with those before",
		"endpoint", r.driver.Endpoint, "problem", err)
}

func (r *rotation) try(ctx context.Context) error {
	l, err := dialSecured(ctx, r.driver, r.next)
	if err != nil {
		return err
	}
	return l.Close()
}
