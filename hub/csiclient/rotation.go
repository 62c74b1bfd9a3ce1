package csiclient

import (
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
func (s *Session) followFiles(d registry.Driver, used *tlsfiles.Material, poll tlsfiles.Poll) {
	ticks, stop := poll()
	defer stop()
	files, next := tlsfiles.NewFollower(used), used
	var problem loglimit.Problem
	for {
		select {
		case <-s.ended.Done():
			return
		case <-ticks:
		}
		found, err := files.Look()
		if found != nil {
			next = found
		}
		if err == nil && next.Same(used) {
			continue
		}
		if err == nil {
			err = s.try(d, next)
		}
		if _, untrusted := errors.AsType[x509.UnknownAuthorityError](err); err == nil || untrusted {
			s.finish() // before calls are refused, so that their callers see why
			s.Close()
			return
		}
		if s.ended.Err() == nil && problem.IsDue(err.Error(), time.Now()) {
			klog.FromContext(s.ended).Info("Cannot use the new TLS files; the connection to the driver keeps the previous ones", "endpoint", d.Endpoint, "err", err)
		}
	}
}

// try connects to the driver with new TLS material. It does not outlive the Session.
func (s *Session) try(d registry.Driver, next *tlsfiles.Material) error {
	if err := next.CheckTime(time.Now()); err != nil {
		return err
	}
	tried, err := dial(s.ended, d, next, nil)
	if err == nil {
		tried.Close()
	}
	return err
}
