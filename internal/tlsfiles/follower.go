package tlsfiles

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// pollInterval is how often the files are looked at. A change is believed at the second
// look.
const pollInterval = 10 * time.Second

// Poll says when files are to be looked at, until stop is called.
type Poll func() (ticks <-chan time.Time, stop func())

// Ticks is the Poll of a program that runs.
func Ticks() (ticks <-chan time.Time, stop func()) {
	ticker := time.NewTicker(pollInterval)
	return ticker.C, ticker.Stop
}

// Follower finds out whether files have changed. It belongs to one goroutine.
type Follower struct {
	files Files
	used  *Material // that is in use
	seen  *Material // by the last look, if it is another one; else nil
}

// NewFollower returns a Follower of the files that the material in use came from.
func NewFollower(used *Material) *Follower {
	return &Follower{files: used.files, used: used}
}

// Look reads the files. It returns what is in them once that is whole, another than
// what is in use, and the same as at the last look: the files may be written one
// after the other. From then on that is in use. It returns nil if there is nothing new,
// and what is wrong with the files if they are not whole.
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

// Run looks at the files until ctx ends, and hands over what is in them each time that
// it is new. Of a port that others verify, for people: files that are not whole are
// logged, once each, and change nothing; so is a certificate that clients will not take.
func (f *Follower) Run(ctx context.Context, poll Poll, take func(*Material)) {
	logger := klog.FromContext(ctx).WithValues("certificate", f.files.Cert)
	if err := f.used.CheckTime(time.Now()); err != nil {
		logger.Info("Warning: clients will not take the certificate of this port", "problem", err)
	}
	ticks, stop := poll()
	defer stop()
	problem := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		next, err := f.Look()
		if err == nil {
			problem = ""
		} else if err.Error() != problem {
			problem = err.Error()
			logger.Info("Warning: the TLS files are not whole, those read before go on to hold", "problem", problem)
		}
		if next != nil {
			take(next)
			logger.Info("Took new TLS files", "expires", next.Certificate.Leaf.NotAfter)
		}
	}
}
