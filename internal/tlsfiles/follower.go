package tlsfiles

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// pollInterval is the time between two readings of the files. A change is used after the
// second reading.
const pollInterval = 10 * time.Second

// Poll returns a channel that ticks whenever files have to be read, until stop is called.
type Poll func() (ticks <-chan time.Time, stop func())

// Ticks is a Poll that ticks every 10 seconds.
func Ticks() (ticks <-chan time.Time, stop func()) {
	ticker := time.NewTicker(pollInterval)
	return ticker.C, ticker.Stop
}

// Follower detects that files have changed. It belongs to one goroutine.
type Follower struct {
	files Files
	used  *Material // in use
	seen  *Material // at the last Look, if it differs from used; else nil
}

// NewFollower returns a Follower of the files of the material in use.
func NewFollower(used *Material) *Follower {
	return &Follower{files: used.files, used: used}
}

// Look reads the files. It returns their content if that is whole, differs from the content
// in use, and is the same as at the last Look: the files may be written one after the other.
// The returned content is in use from then on. Look returns nil if there is nothing new, and
// an error if the files are not whole.
func (f *Follower) Look() (*Material, error) {
	now, err := f.files.Load()
	if err != nil {
		f.seen = nil
		return nil, err
	}
	switch {
	case now.Same(f.used):
		f.seen = nil
	case f.seen == nil || !now.Same(f.seen):
		f.seen = now
	default:
		f.used, f.seen = now, nil
		return now, nil
	}
	return nil, nil
}

// Run follows the files of a port until ctx ends, and calls take with each new content. If
// the files are not whole, it logs that and keeps the content in use. At the
// start it logs a certificate that has expired or is not valid yet.
func (f *Follower) Run(ctx context.Context, poll Poll, take func(*Material)) {
	logger := klog.FromContext(ctx).WithValues("certificate", f.files.Cert)
	if err := f.used.CheckTime(time.Now()); err != nil {
		logger.Info("Clients will reject the certificate of this port", "err", err)
	}
	ticks, stop := poll()
	defer stop()
	var problem loglimit.Problem
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		before := f.used
		next, err := f.Look()
		if err != nil && problem.IsDue(err.Error(), time.Now()) {
			logger.Info("New TLS files rejected; the previous ones stay active", "err", err)
		}
		if next != nil {
			take(next)
			close(before.replaced)
			logger.Info("Loaded new TLS files", "expires", next.Certificate.Leaf.NotAfter)
		}
	}
}
