package csiclient

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// followFiles ends the Session when its TLS files have been replaced by others with which
// the driver can be reached: the owner then connects with the new files. Calls in flight
// finish on the old connection. Files that are not whole, or that the driver's side refuses,
// change nothing. But if the driver's certificate is not from the new authorities, the
// Session ends in any case: it would still send secrets to that driver. followFiles returns
// when the Session is done.
func (s *Session) followFiles(ctx context.Context, d registry.Driver, used *tlsfiles.Material, poll tlsfiles.Poll) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.follow(ctx, func() { // a try does not outlive the Session
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	})
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
			s.finish() // before calls are refused, so that their callers see why
			s.Close()
			return
		}
	}
}

// rotation decides when a connection has to be replaced because its TLS files have changed.
// It belongs to one goroutine.
type rotation struct {
	driver  registry.Driver
	used    *tlsfiles.Material // by the connection
	files   *tlsfiles.Follower
	next    *tlsfiles.Material // new content to be tried, or nil
	problem loglimit.Problem   // with the new content
}

// due reports whether to replace the connection. It reads the files, and tries new content
// on a connection of its own.
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
	if ctx.Err() == nil && r.problem.IsDue(err.Error(), time.Now()) {
		klog.FromContext(ctx).Info("Cannot use the new TLS files; the connection to the driver keeps the previous ones", "endpoint", r.driver.Endpoint, "err", err)
	}
	return false
}

func (r *rotation) try(ctx context.Context) error {
	client, err := dialSecured(ctx, r.driver, r.next)
	if err != nil {
		return err
	}
	return client.Close()
}
