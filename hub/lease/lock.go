package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// lock acquires, renews and releases one Lease for this process. It writes what client-go's
// elector writes (tools/leaderelection with a LeaseLock), so that either can succeed the
// other. One goroutine at a time may call its methods.
type lock struct {
	name         Name
	options      Options
	client       coordinationclient.LeaseInterface
	observations *observations

	// slot has room for one: the candidate that may use the lock. Candidates of one process
	// have the same identity, so the Lease cannot keep them apart.
	slot     chan struct{}
	annotate func(*coordinationv1.Lease) // adds labels and annotations to what is written; may be nil
	last     *coordinationv1.Lease       // as this process wrote it last; nil if it never did

	term *Term // from the acquisition to the end of all work, else nil; guarded by Leases.mu
}

// Name identifies a Lease object.
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

var (
	errStale     = errors.New("the lease has changed since it was last seen")
	errNotHolder = errors.New("the lease is not held by this process")
)

// answered reports whether err says that a request was not carried out. A request that got
// no answer may have been.
func answered(err error) bool {
	if errors.Is(err, errStale) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}

// acquire takes the Lease if it still is as it was observed, else it returns errStale. The
// caller has decided that this process may take it.
func (l *lock) acquire(ctx context.Context, observed observation) (*Term, error) {
	continues := l.continues(observed)
	sent := l.observations.clock()
	if err := l.write(ctx, observed); err != nil {
		return nil, err
	}
	t := NewTerm(l.options.Duration, l.options.RetryPeriod, l.last.ResourceVersion, continues)
	t.renewed = sent
	return t, nil
}

// continues reports whether no other process has held the Lease since this process last
// wrote it.
func (l *lock) continues(observed observation) bool {
	if l.last == nil || !observed.present || observed.lease.UID != l.last.UID {
		return false
	}
	return observed.lease.ResourceVersion == l.last.ResourceVersion ||
		observed.holder() == l.options.Identity && transitions(&observed.lease) == transitions(l.last)
}

func transitions(l *coordinationv1.Lease) int32 { return ptr.Deref(l.Spec.LeaseTransitions, 0) }

// renew renews the Lease for the term. It creates a Lease that was deleted anew.
func (l *lock) renew(ctx context.Context, t *Term) error {
	return l.withFresh(ctx, func(observed observation) error {
		if observed.holder() != l.options.Identity {
			return errNotHolder
		}
		sent := l.observations.clock()
		err := l.write(ctx, observed)
		if err == nil {
			t.renew(sent)
		}
		return err
	})
}

// withFresh calls write with the last observation. If that is stale (the watch is behind or
// down, or an answer got lost), it reads the Lease and calls write again.
func (l *lock) withFresh(ctx context.Context, write func(observation) error) error {
	err := write(l.observations.get(l.name))
	if !errors.Is(err, errStale) {
		return err
	}
	observed, err := l.read(ctx)
	if err != nil {
		return err
	}
	return write(observed)
}

// write makes this process the holder, or renews the Lease if it is the holder. The update
// carries the resourceVersion of the observation: another process that wrote the Lease since
// keeps it, and write returns errStale.
func (l *lock) write(ctx context.Context, observed observation) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.requestTimeout())
	defer cancel()
	var written *coordinationv1.Lease
	var err error
	if observed.present {
		written, err = l.client.Update(ctx, l.fill(observed), metav1.UpdateOptions{})
	} else {
		written, err = l.client.Create(ctx, l.fill(observed), metav1.CreateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || observed.present && apierrors.IsNotFound(err) {
		return errStale
	}
	if err != nil {
		return err
	}
	l.wrote(written)
	return nil
}

// fill returns the Lease as it is to be written. A new holder, also of a Lease that was
// released, is one more transition; a new Lease has had none.
func (l *lock) fill(observed observation) *coordinationv1.Lease {
	wanted := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.name.Namespace, Name: l.name.Name}}
	now := metav1.NewMicroTime(l.observations.clock().wall)
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(l.options.Identity),
		LeaseDurationSeconds: ptr.To(int32(l.options.Duration / time.Second)),
		AcquireTime:          &now,
		RenewTime:            &now,
		LeaseTransitions:     ptr.To[int32](0),
	}
	if observed.present {
		wanted = observed.lease.DeepCopy()
		spec.LeaseTransitions = ptr.To(transitions(wanted) + 1)
		if observed.holder() == l.options.Identity {
			spec.AcquireTime, spec.LeaseTransitions = wanted.Spec.AcquireTime, ptr.To(transitions(wanted))
		}
	}
	if wanted.Labels == nil {
		wanted.Labels = map[string]string{}
	}
	maps.Copy(wanted.Labels, l.options.Labels)
	if l.annotate != nil {
		l.annotate(wanted)
	}
	wanted.Spec = spec
	return wanted
}

func (l *lock) wrote(lease *coordinationv1.Lease) {
	l.last = lease
	l.observations.saw(lease)
}

// read asks the API server for the Lease and returns the last observation of it.
func (l *lock) read(ctx context.Context) (observation, error) {
	ctx, cancel := context.WithTimeout(ctx, l.options.requestTimeout())
	defer cancel()
	lease, err := l.client.Get(ctx, l.name.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		l.observations.saw(lease)
	case apierrors.IsNotFound(err):
		l.observations.sawDeleted(l.name, "")
	default:
		return observation{}, err
	}
	return l.observations.get(l.name), nil
}

// release releases the Lease if this process holds it. It tries for the renew deadline: the
// Lease expires soon after. The end of ctx does not stop it, since a process that ends is
// the usual reason to release.
func (l *lock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.options.RenewDeadline)
	defer cancel()
	var sent metav1.MicroTime
	for {
		done, err := l.tryRelease(ctx, &sent)
		if done {
			return nil
		}
		if !apierrors.IsConflict(err) {
			pause(ctx, min(l.options.RetryPeriod, time.Second))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("release lease %s: %w", l.name, err)
		}
	}
}

// tryRelease reports whether there is nothing left to release. sent is the time that the
// last update carried whose answer got lost.
func (l *lock) tryRelease(ctx context.Context, sent *metav1.MicroTime) (done bool, err error) {
	observed, err := l.read(ctx)
	if err != nil || !observed.present {
		return err == nil, err
	}
	if observed.holder() != l.options.Identity {
		if observed.holder() == "" && !sent.IsZero() && observed.lease.Spec.RenewTime.Equal(sent) {
			l.last = &observed.lease // that update arrived
		}
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.requestTimeout())
	defer cancel()
	// As client-go's elector releases a lease.
	*sent = metav1.NewMicroTime(l.observations.clock().wall.Truncate(time.Microsecond))
	lease := observed.lease.DeepCopy()
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
	lease.Spec.AcquireTime, lease.Spec.RenewTime = sent.DeepCopy(), sent.DeepCopy()
	written, err := l.client.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return false, err
	}
	l.wrote(written)
	return true, nil
}
