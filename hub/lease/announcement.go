package lease

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// The Lease by which a replica announces itself.
const (
	replicaPrefix     = "csi-attach-hub-replica-" // of its name; a hash of the identity follows
	replicaLabel      = "attach-hub/replica"      // "true"
	driversAnnotation = "attach-hub/drivers"      // names, separated by commas
)

func isAnnouncement(l *coordinationv1.Lease) bool { return l.Labels[replicaLabel] == "true" }

func announcedDrivers(l *coordinationv1.Lease) []string {
	if names := l.Annotations[driversAnnotation]; names != "" {
		return strings.Split(names, ",")
	}
	return nil
}

// replicaName returns the name of the Lease by which a replica announces itself.
func replicaName(identity string) string {
	return fmt.Sprintf("%s%x", replicaPrefix, sha256.Sum256([]byte(identity)))
}

// announcer renews the Lease that tells the other replicas that this one lives, and which
// drivers it can call.
type announcer struct {
	leases  *Leases
	lock    *lock
	problem loglimit.Problem // of the writes
}

func newAnnouncer(l *Leases) *announcer {
	a := &announcer{leases: l, lock: l.lock(Name{l.options.Namespace, replicaName(l.options.Identity)})}
	a.lock.annotate = func(lease *coordinationv1.Lease) {
		metav1.SetMetaDataLabel(&lease.ObjectMeta, replicaLabel, "true")
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, driversAnnotation, strings.Join(l.driversToAnnounce(), ","))
	}
	return a
}

// batchDelay is how long an announcement waits for more candidacies to come or go.
const batchDelay = 20 * time.Millisecond

// run blocks until ctx ends and the announcement has been deleted.
func (a *announcer) run(ctx context.Context) {
	retry := a.leases.options.RetryPeriod
	ticker := time.NewTicker(retry)
	defer ticker.Stop()
	for ctx.Err() == nil {
		switch err := a.write(ctx); {
		case ctx.Err() != nil:
		case err == nil && a.problem != (loglimit.Problem{}):
			a.problem = loglimit.Problem{}
			klog.FromContext(ctx).Info("Announced this replica to the others again")
		case err != nil && a.problem.IsDue(err.Error(), time.Now()):
			klog.FromContext(ctx).Error(err, "Failed to announce this replica to the others, will retry")
		}
		a.deleteOld(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		case <-a.leases.announce:
			pause(ctx, min(batchDelay, retry))
		}
	}
	a.withdraw(ctx)
}

func (a *announcer) write(ctx context.Context) error {
	return a.lock.withFresh(ctx, func(observed observation) error { return a.lock.write(ctx, observed) })
}

// deleteOld deletes the announcements of replicas that died: a replica that starts while no other one lives would wait for them.
// Any replica that sees all changes does it; without the permission they stay.
func (a *announcer) deleteOld(ctx context.Context) {
	o, watch := a.leases.options, a.leases.observations.watchOf(Name{Namespace: a.leases.options.Namespace})
	for n, seen := range a.leases.observations.announcements(o.Namespace) {
		if !seen.isDead(watch, o.Duration, time.Now().Add(-o.Duration)) || seen.holder() == o.Identity {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, o.requestTimeout())
		// An announcement that was renewed meanwhile stays.
		version := metav1.Preconditions{ResourceVersion: &seen.lease.ResourceVersion}
		err := a.lock.client.Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &version})
		cancel()
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(ctx).V(4).Info("Failed to delete the lease of a dead replica", "lease", n, "err", err)
		}
	}
}

// withdraw deletes the announcement, so that the others need not wait until it expires. ctx
// has ended.
func (a *announcer) withdraw(ctx context.Context) {
	o := a.leases.options
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.requestTimeout())
	defer cancel()
	err := a.lock.client.Delete(ctx, a.lock.name.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Failed to withdraw the announcement of this replica, it expires", "after", o.Duration)
	}
}
