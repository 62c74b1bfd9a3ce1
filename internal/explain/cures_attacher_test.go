package explain_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
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
	{
		name: "conflicting writer",
		prepare: func(s *cureScene) {
			s.entry = []string{"onForeignWriter: pause"}
			s.addAttacher("--v=2", func(ctx context.Context, _ string) { s.writeStatus(ctx) })
		},
		ask:     (*cureScene).attachAfterConflict,
		verdict: diagnosis.ForeignWriter, object: "driver {name}", words: []string{"another attacher (csi-attacher) wrote VolumeAttachment {name}"},
		cured: func(s *cureScene) {
			s.waitAttached(s.name + "-next")
			if running := s.workload.template().Spec.Containers; len(running) != 1 || running[0].Name != "csi-driver" {
				s.t.Errorf("these containers are left: %v", running)
			}
		},
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

// writeStatus writes errors into VolumeAttachments, as a csi-attacher without leader election does.
func (s *cureScene) writeStatus(ctx context.Context) {
	message, err := json.Marshal(map[string]any{"status": map[string]any{"attachError": map[string]any{"message": "another attacher was here", "time": metav1.Now()}}})
	if err == nil { // it may not exist yet
		_, _ = s.kube.StorageV1().VolumeAttachments().Patch(ctx, s.name, types.MergePatchType, message, metav1.PatchOptions{FieldManager: "csi-attacher"}, "status")
	}
}

// add has the player run a program in a container that is added later.
func (p *workloadPlayer) add(container string, run program) {
	p.mu.Lock() // the player takes it too before it looks for programs
	defer p.mu.Unlock()
	p.programs[container] = run
}

// attachAfterConflict asks for a volume that the other attacher writes too, and for the next one once the hub has seen that.
func (s *cureScene) attachAfterConflict() string {
	s.attach()
	s.until("the hub has seen the other attacher", func() bool {
		d := s.view().Driver(s.name)
		return d != nil && d.ForeignWriter.VolumeAttachment == s.name
	}, func() string { return s.hub.LastLines(20) })
	next := s.name + "-next"
	s.must(s.world.Cluster.Create(s.ctx, testbed.PersistentVolume{Name: next, Driver: s.name},
		testbed.VolumeAttachment{Name: next, Driver: s.name, Node: s.node, PersistentVolume: next}))
	return next
}

// template returns the Pod template of the Deployment.
func (p *workloadPlayer) template() corev1.PodTemplateSpec {
	p.s.t.Helper()
	d, err := p.s.kube.AppsV1().Deployments(p.s.name).Get(p.s.ctx, p.deployment, metav1.GetOptions{})
	p.s.must(err)
	return d.Spec.Template
}
