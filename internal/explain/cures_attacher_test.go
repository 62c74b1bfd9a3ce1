package explain_test

import (
	"context"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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
		words: []string{"held by csi-controller-5f7c9d8b6-dead1", "Pod does not exist in namespace {name}", "it expires in 54m"},
	},
	{
		name: "lease held by a living sidecar",
		prepare: func(s *cureScene) {
			s.leaseInDriversNamespace()
			// One that renews its lease and attaches nothing.
			s.addAttacher("--leader-election", func(ctx context.Context, pod string) { s.holdLease(ctx, pod, time.Now(), 3*time.Second) })
		},
		verdict: diagnosis.LeaseHeld, object: "Lease {name}/external-attacher-leader-{name}",
		words: []string{"held by another attacher (csi-controller-", "the holder is Pod {name}/csi-controller-"},
	},
}

func (s *cureScene) leaseInDriversNamespace() {
	s.entry = []string{"lease:", "  namespace: " + s.name}
}

// addAttacher adds a csi-attacher to the driver's Pod. every is its work, which it repeats.
func (s *cureScene) addAttacher(arg string, every func(ctx context.Context, pod string)) {
	s.t.Helper()
	s.workload.add("csi-attacher", func() (stop func()) {
		ctx, cancel := context.WithCancel(s.ctx)
		var work sync.WaitGroup
		work.Go(func() {
			for ctx.Err() == nil {
				if pod := s.workload.podName(); pod != "" {
					every(ctx, pod)
				}
				select {
				case <-ctx.Done():
				case <-time.After(playEvery):
				}
			}
		})
		return func() {
			cancel()
			work.Wait()
		}
	})
	s.workload.change(func(d *appsv1.Deployment) {
		sidecar := corev1.Container{Name: "csi-attacher", Image: "registry.k8s.io/sig-storage/csi-attacher:v4.8.0", Args: []string{arg}}
		d.Spec.Template.Spec.Containers = slices.Insert(d.Spec.Template.Spec.Containers, 0, sidecar)
	})
	s.until("the csi-attacher runs", func() bool { return s.workload.started("csi-attacher") > 0 }, func() string { return "it does not" })
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

// add has the player run a program in a container that is added later.
func (p *workloadPlayer) add(container string, run program) {
	p.mu.Lock() // the player takes it too before it looks for programs
	defer p.mu.Unlock()
	p.programs[container] = run
}
