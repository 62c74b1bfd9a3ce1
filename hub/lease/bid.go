package lease

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// bid tries to take the lease and serves if it did. served reports that Serve has
// ended by itself.
func (h *hold) bid(ctx context.Context) (served bool, err error) {
	c, err := h.newCampaign(h.claim.Lease)
	if err != nil {
		return false, err
	}
	// The lease is renewed until the work has ended, so for longer than ctx may last.
	electing, stopElecting := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(electing)
	}()
	// Deferred, so that nothing renews the lease if Serve panics.
	stop := func() { stopElecting(); <-ended }
	defer stop()

	select {
	case <-c.acquired:
	case <-c.refused:
	case <-ended:
	case <-ctx.Done():
	}
	term := c.held()
	if term == nil || ctx.Err() != nil {
		stop()
		return false, h.withdraw(ctx, c)
	}
	h.err, h.told = nil, ""
	logger := klog.FromContext(ctx).WithValues("driver", h.claim.Driver, "lease", h.claim.Lease)
	logger.V(2).Info("Lease acquired")
	served, err = h.serve(klog.NewContext(ctx, logger), c, term, stopElecting, ended)
	stop()
	h.history.note(h.claim.Lease, c.written())
	if !term.isLost() {
		if err := h.release(ctx, h.claim.Lease); err != nil {
			logger.Error(err, "Lease not released, it expires", "after", h.opts.Duration)
		} else {
			logger.V(2).Info("Lease released")
		}
	}
	return served, err
}

// withdraw ends an attempt without a term: the next one is not made at once, and when
// there is no next one, what may have been acquired all the same is released.
func (h *hold) withdraw(ctx context.Context, c *campaign) error {
	err, doubt := c.outcome()
	if ctx.Err() != nil {
		if doubt || c.held() != nil {
			if err := h.release(ctx, h.claim.Lease); err != nil {
				klog.FromContext(ctx).Error(err, "Lease not released, it expires", "driver", h.claim.Driver, "after", h.opts.Duration)
			}
		}
		return nil
	}
	h.rest = time.Now().Add(h.opts.RetryPeriod/2 + rand.N(h.opts.RetryPeriod/2))
	h.err = nil
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && err != errHeld && err != errNotDue {
		h.err = err
	}
	return nil
}

// serve calls Serve under supervision. The lease is held on when it returns, unless it
// was lost.
func (h *hold) serve(ctx context.Context, c *campaign, term *Term, stopElecting func(), ended <-chan struct{}) (byItself bool, err error) {
	h.setTerm(term)
	defer h.setTerm(nil)
	stop, stopServing := context.WithCancel(ctx)
	served, supervised := make(chan struct{}), make(chan struct{})
	s := &supervisor{hold: h, campaign: c, term: term, ended: ended, stopServing: stopServing, stopElecting: stopElecting}
	go func() {
		defer close(supervised)
		s.run(ctx, served)
	}()
	defer func() {
		close(served)
		<-supervised
		stopServing()
		term.end()
	}()
	err = h.claim.Serve(stop, term)
	return stop.Err() == nil && !term.isLost(), err
}

func (h *hold) setTerm(t *Term) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t == nil {
		delete(h.terms, h.claim.Lease)
	} else {
		h.terms[h.claim.Lease] = t
	}
}
