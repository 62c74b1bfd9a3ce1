package explain_test

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// attacherCures are those of another attacher for the driver.
var attacherCures = []cure{
	{
		name: "lease held by a dead sidecar",
		prepare: func(s *cureScene) {
			s.leaseInDriversNamespace()
			s.holdLease(s.ctx, "csi-controller-5f7c9d8b6-dead1", time.Now().Add(-5*time.Minute), time.Hour)
		},
		verdict: diagnosis.LeaseHolderGone, object: "Lease {name}/external-attacher-leader-{name}",
		words: []string{"held by another attacher (csi-controller-5f7c9d8b6-dead1)", "not renewed it for 5m", "it expires in 54m"},
	},
}

func (s *cureScene) leaseInDriversNamespace() {
	s.entry = []string{"lease:", "  namespace: " + s.name}
}

// holdLease takes or renews the driver's lease, as of a time.
func (s *cureScene) holdLease(ctx context.Context, identity string, at time.Time, duration time.Duration) {
	leases := s.kube.CoordinationV1().Leases(s.name)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: ptr.To(int32(duration.Seconds())), RenewTime: ptr.To(metav1.NewMicroTime(at)), AcquireTime: ptr.To(metav1.NewMicroTime(at))}
	l, err := leases.Get(ctx, registry.LeaseName(s.name), metav1.GetOptions{})
	if err != nil {
		_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: registry.LeaseName(s.name)}, Spec: spec}, metav1.CreateOptions{})
		return
	}
	if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder == identity || holder == "" {
		spec.AcquireTime = l.Spec.AcquireTime
		l.Spec = spec
		_, _ = leases.Update(ctx, l, metav1.UpdateOptions{}) // the next turn tries again
	}
}
