package lease

import (
	"context"
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

// Member is a living replica.
type Member struct {
	Identity string
	Drivers  []string // that it is able to serve, sorted
	Self     bool
}

// announcer renews the Lease by which this replica says that it lives, and what it is able
// to serve.
type announcer struct {
	leases *Leases
	lease  *coordinationv1.Lease // as last written; nil: to be read
	began  metav1.MicroTime
	failed bool // the last try
}

// coalesce is how long the announcement waits for more claims to come or go.
const coalesce = 20 * time.Millisecond

// run blocks until ctx ends and the announcement has been taken back.
func (a *announcer) run(ctx context.Context) {
	o := a.leases.opts
	a.began = metav1.NowMicro()
	client := o.Kube.CoordinationV1().Leases(o.Namespace)
	ticker := time.NewTicker(o.RetryPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		a.tell(ctx, a.write(ctx, client))
		a.bury(ctx, client)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-a.leases.announce:
			pause(ctx, min(coalesce, o.RetryPeriod))
		}
	}
	a.withdraw(ctx, client)
}

// tell logs when the announcement begins to fail, and when that is over.
func (a *announcer) tell(ctx context.Context, err error) {
	if ctx.Err() != nil || a.failed == (err != nil) {
		return
	}
	a.failed = err != nil
	if a.failed {
		klog.FromContext(ctx).Error(err, "Cannot announce this replica to the others")
	} else {
		klog.FromContext(ctx).Info("This replica is announced to the others again")
	}
}

func (a *announcer) write(ctx context.Context, client coordinationclient.LeaseInterface) error {
	ctx, cancel := context.WithTimeout(ctx, a.leases.opts.requestTimeout())
	defer cancel()
	if a.lease == nil {
		l, err := client.Get(ctx, replicaName(a.leases.opts.Identity), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			a.lease = l
		}
	}
	var l *coordinationv1.Lease
	var err error
	if a.lease == nil {
		l, err = client.Create(ctx, a.fill(&coordinationv1.Lease{}), metav1.CreateOptions{})
	} else {
		l, err = client.Update(ctx, a.fill(a.lease.DeepCopy()), metav1.UpdateOptions{})
	}
	a.lease = l
	if err != nil {
		a.lease = nil // whatever is there is read next time
		return err
	}
	a.leases.observer.saw(l)
	return nil
}

// fill writes what is to be announced into the object.
func (a *announcer) fill(l *coordinationv1.Lease) *coordinationv1.Lease {
	o := a.leases.opts
	l.Namespace, l.Name = o.Namespace, replicaName(o.Identity)
	labels := maps.Clone(o.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[replicaLabel] = "true"
	l.Labels = labels
	l.Annotations = map[string]string{driversAnnotation: strings.Join(a.leases.able(), ",")}
	now, seconds := metav1.NowMicro(), int32(o.Duration/time.Second)
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       &o.Identity,
		LeaseDurationSeconds: &seconds,
		AcquireTime:          &a.began,
		RenewTime:            &now,
	}
	return l
}

// bury deletes the announcements of replicas that died long ago. Whichever replica comes
// first does it, and if none may, they just stay.
func (a *announcer) bury(ctx context.Context, client coordinationclient.LeaseInterface) {
	o := a.leases.opts
	old := max(time.Hour, 10*o.Duration)
	for n, s := range a.leases.observer.announced(o.Namespace) {
		if time.Since(s.since) < old || s.record.holder == o.Identity {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, o.requestTimeout())
		// One that was renewed meanwhile stays.
		err := client.Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &s.record.version}})
		cancel()
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).V(4).Info("Cannot delete the lease of a dead replica", "lease", n, "err", err)
		}
	}
}

// withdraw deletes the announcement, so that others need not wait for it to expire. ctx has ended.
func (a *announcer) withdraw(ctx context.Context, client coordinationclient.LeaseInterface) {
	o := a.leases.opts
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.requestTimeout())
	defer cancel()
	err := client.Delete(ctx, replicaName(o.Identity), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Cannot withdraw the announcement of this replica; it expires", "after", o.Duration)
	}
}
