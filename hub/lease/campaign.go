package lease

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// campaign is one run of client-go's elector, from the attempt to take a lease
// until it is given up or lost.
//
// It stands between the elector and the API: it notes when each renewal was sent,
// ends the attempt at the first refusal (the elector would poll, while the watch
// says when it is worth to try again), and shows the elector a lease as held by nobody
// if the observer saw it stand for its whole duration (the elector would wait
// that long once more). An update carries the resourceVersion of that very read, so a
// holder that renews in between keeps its lease.
type campaign struct {
	coordinationclient.LeaseInterface // of the namespace
	opts                              Options
	lease                             Name
	observer                          *observer
	continues                         func(prior record) bool

	elector   *leaderelection.LeaderElector
	announced chan struct{} // closed by the elector when it leads

	acquired chan struct{} // closed when the lease is ours
	refused  chan struct{} // closed when the attempt has come to nothing
	ousted   chan struct{} // closed when somebody else was seen to hold the lease after that

	mu    sync.Mutex
	prior record // the lease before it was acquired
	last  record // the lease as last written
	term  *Term  // once acquired
	err   error  // of the last request, if it failed
	doubt bool   // a write may have succeeded unbeknown
	out   bool   // ousted is closed
}

func (l *Leases) newCampaign(lease Name) (*campaign, error) {
	c := &campaign{
		LeaseInterface: l.opts.Kube.CoordinationV1().Leases(lease.Namespace),
		opts:           l.opts,
		lease:          lease,
		observer:       l.observer,
		continues:      func(prior record) bool { return l.history.continues(lease, prior, l.opts.Identity) },
		announced:      make(chan struct{}),
		acquired:       make(chan struct{}),
		refused:        make(chan struct{}),
		ousted:         make(chan struct{}),
	}
	var err error
	c.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: lease.Name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Client:     c,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.opts.Identity},
			Labels:     l.opts.Labels,
		},
		LeaseDuration: l.opts.Duration,
		RenewDeadline: l.opts.RenewDeadline,
		RetryPeriod:   l.opts.RetryPeriod,
		// It would not wait for the work to end, and could overwrite another's lease.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(c.announced) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("compete for lease %s: %w", lease, err)
	}
	return c, nil
}

// run blocks until ctx ends or the elector has given up.
func (c *campaign) run(ctx context.Context) {
	c.elector.Run(klog.NewContext(ctx, quiet(klog.FromContext(ctx))))
	if c.held() != nil {
		<-c.announced // by a goroutine of the elector, which does not wait for it
	}
}

// held is the term, nil if the lease was not acquired.
func (c *campaign) held() *Term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}

// outcome says what is left of an attempt that was not followed by a term.
func (c *campaign) outcome() (err error, doubt bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err, c.doubt
}

// written is the lease as last written.
func (c *campaign) written() record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Leases makes the campaign the elector's client.
func (c *campaign) Leases(string) coordinationclient.LeaseInterface { return c }

var (
	errHeld   = errors.New("somebody else holds the lease")
	errNotDue = errors.New("the lease was deleted while it was held")
)

// Get reads the lease and shows it as held by nobody if it is due.
func (c *campaign) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.requestTimeout())
	defer cancel()
	l, err := c.LeaseInterface.Get(ctx, name, o)
	switch {
	case err == nil:
		c.observer.saw(l)
	case apierrors.IsNotFound(err):
		c.observer.gone(c.lease, "")
	default:
		return nil, c.fail(err)
	}
	seen := c.observer.look(c.lease)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != nil {
		return c.lookWhileHeld(l, err)
	}
	due := !time.Now().Before(seen.dueAt(c.opts.Duration))
	if err != nil {
		if seen.record.holder == c.opts.Identity || due && !seen.present {
			return nil, err // it is made anew
		}
		return nil, c.refuse(errNotDue)
	}
	c.prior = recordOf(l)
	switch {
	case c.prior.holder == "" || c.prior.holder == c.opts.Identity:
		return l, nil
	case due && seen.record.version == c.prior.version:
		l = l.DeepCopy()
		l.Spec.HolderIdentity = new(string)
		return l, nil
	default:
		return nil, c.refuse(errHeld)
	}
}

// lookWhileHeld lets the elector renew only what is still its own. One that found
// the lease free would take it anew, as if nobody had held it in between. The caller has
// locked mu.
func (c *campaign) lookWhileHeld(l *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil || deref(l.Spec.HolderIdentity) == c.opts.Identity {
		return l, err
	}
	if !c.out {
		c.out = true
		close(c.ousted)
	}
	return nil, errHeld
}

// Create makes the lease, held by this process.
func (c *campaign) Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.write(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) { return c.LeaseInterface.Create(ctx, l, o) })
}

// Update takes or renews the lease.
func (c *campaign) Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.write(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) { return c.LeaseInterface.Update(ctx, l, o) })
}

func (c *campaign) write(ctx context.Context, send func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.requestTimeout())
	defer cancel()
	sent := now()
	l, err := send(ctx)
	if err != nil {
		return nil, c.fail(err)
	}
	c.observer.saw(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.doubt = nil, false
	c.last = recordOf(l)
	if c.term != nil {
		c.term.renew(sent)
		return l, nil
	}
	c.term = &Term{
		duration:  c.opts.Duration,
		retry:     c.opts.RetryPeriod,
		version:   l.ResourceVersion,
		continues: c.continues(c.prior),
		lost:      make(chan struct{}),
		renewed:   sent,
	}
	close(c.acquired)
	return l, nil
}

// fail notes that a request failed, and returns its error.
func (c *campaign) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refuse(err)
}

// refuse ends the attempt, if it is still one. The caller has locked mu.
func (c *campaign) refuse(err error) error {
	if c.term == nil && c.err == nil {
		close(c.refused)
	}
	c.err = err
	// What the server did not answer, it may have done.
	c.doubt = c.doubt || !answered(err)
	return err
}

// answered reports whether an error is an answer of the API server, or this
// campaign's own: that what was asked for was not done.
func answered(err error) bool {
	if errors.Is(err, errHeld) || errors.Is(err, errNotDue) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}
