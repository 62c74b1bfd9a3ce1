package lease

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// release gives a lease up that this process may hold; the elector has stopped. It
// tries for as long as the renew deadline: the lease ends by itself soon after. The context's end
// does not stop it, since a process that ends is the usual reason to release.
func (l *Leases) release(ctx context.Context, n Name) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.RenewDeadline)
	defer cancel()
	client := l.opts.Kube.CoordinationV1().Leases(n.Namespace)
	var wrote metav1.MicroTime // of an update whose answer got lost
	for {
		done, err := l.tryRelease(ctx, client, n, &wrote)
		if done {
			return nil
		}
		if !apierrors.IsConflict(err) {
			pause(ctx, min(l.opts.RetryPeriod, time.Second))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("release lease %s: %w", n, err)
		}
	}
}

// tryRelease reports whether there is nothing left to release.
func (l *Leases) tryRelease(ctx context.Context, client coordinationclient.LeaseInterface, n Name, wrote *metav1.MicroTime) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.requestTimeout())
	defer cancel()
	lease, err := client.Get(ctx, n.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	l.observer.saw(lease)
	if deref(lease.Spec.HolderIdentity) != l.opts.Identity {
		if deref(lease.Spec.HolderIdentity) == "" && !wrote.IsZero() && lease.Spec.RenewTime.Equal(wrote) {
			l.history.note(n, recordOf(lease)) // that update did arrive
		}
		return true, nil
	}
	*wrote = setReleased(lease)
	lease, err = client.Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return false, err
	}
	l.observer.saw(lease)
	l.history.note(n, recordOf(lease))
	return true, nil
}

// setReleased writes what client-go's elector writes to release a lease, for the electors of others.
func setReleased(l *coordinationv1.Lease) metav1.MicroTime {
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	second := int32(1)
	l.Spec.HolderIdentity = new(string)
	l.Spec.LeaseDurationSeconds = &second
	l.Spec.AcquireTime, l.Spec.RenewTime = &now, &now
	return now
}
