package explain_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// objectCures are those of the objects of Kubernetes around a volume.
var objectCures = []cure{
	{
		name: "lease held by a dead sidecar",
		prepare: func(s *cureScene) {
			s.leaseInDriversNamespace()
			s.holdLease(s.ctx, "csi-controller-5f7c9d8b6-dead1", time.Now().Add(-10*time.Hour-30*time.Minute), 24*time.Hour)
		},
		verdict: diagnosis.LeaseHolderGone, object: "Lease {name}/external-attacher-leader-{name}",
		words: []string{"held by another attacher (csi-controller-5f7c9d8b6-dead1)", "not renewed it for 10h", "it expires in 13h"},
	},
	{
		name: "node gone",
		breaks: func(s *cureScene) {
			s.must(s.kube.CoreV1().Nodes().Delete(s.ctx, s.node, metav1.DeleteOptions{}))
			s.must(s.kube.StorageV1().CSINodes().Delete(s.ctx, s.node, metav1.DeleteOptions{}))
		},
		verdict: diagnosis.NodeMissing, object: "Node {name}-node", words: []string{"the node is gone"},
		cured: (*cureScene).waitNothingAsked, well: "driver/{name}",
	},
	{
		name: "missing secret",
		prepare: func(s *cureScene) {
			s.entry = []string{"retry:", "  initial: 200ms", "  max: 1s"} // so that the test does not wait for the next try
			s.pv.Secret = &corev1.SecretReference{Namespace: s.name, Name: "array-login"}
			s.must(os.WriteFile(filepath.Join(s.world.Dir, "login.env"), []byte("user=hub\npassword=hunter2\n"), 0o600))
		},
		verdict: diagnosis.SecretMissing, object: "VolumeAttachment {name}", words: []string{`secrets "array-login" not found`},
		fill: map[string]string{"FILE": "login.env"},
	},
	{
		name: "out-of-service taint needed", controllers: true,
		breaks:  (*cureScene).loseNode,
		ask:     func(s *cureScene) string { return "pod/default/" + s.name + "-new" },
		verdict: diagnosis.AttachedToNotReadyNode, object: "Node {name}-node", words: []string{"not ready", "kubelet stopped posting"},
		cured: func(s *cureScene) { s.waitAttachedTo(s.name + "-node2") },
	},
	{
		name: "attachRequired wrong", controllers: true,
		breaks: func(s *cureScene) {
			s.must(s.world.Cluster.Create(s.ctx, testbed.CSIDriver{Name: s.driver.Name, NoAttach: true}))
		},
		ask:     (*cureScene).playStatefulSetPod,
		verdict: diagnosis.AttachRequiredWrong, object: "CSIDriver {name}", words: []string{"attachRequired: false", "PUBLISH_UNPUBLISH_VOLUME"},
		cured: func(s *cureScene) { s.waitAttachedTo(s.node) },
	},
}

// playStatefulSetPod makes a claim and a Pod of a StatefulSet that uses it, which waits on its node.
func (s *cureScene) playStatefulSetPod() (question string) {
	s.t.Helper()
	s.claim()
	pod := testbed.Pod{Name: s.name + "-0", Node: s.node, Claims: []string{s.name}}.Build()
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: s.name, UID: types.UID(s.name), Controller: ptr.To(true)}}
	s.playPod(pod)
	return "pod/default/" + pod.Name
}

// playPod does for a Pod what its controller and kubelet do: it makes it, ends it when it is deleted and makes it again.
// started is called after each start. The Pod is there when it returns.
func (s *cureScene) playPod(pod *corev1.Pod) {
	s.t.Helper()
	pods := s.kube.CoreV1().Pods(pod.Namespace)
	running := make(chan struct{}, 1)
	s.play(func(ctx context.Context) {
		switch is, err := pods.Get(ctx, pod.Name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err == nil {
				select {
				case running <- struct{}{}:
				default:
				}
			}
		case err == nil && is.DeletionTimestamp != nil:
			_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}) // the next step sees whether it worked
		}
	})
	select {
	case <-running:
	case <-s.ctx.Done():
		s.t.Fatal("the Pod was never made")
	}
}

// claim makes the volume with a claim that is bound to it.
func (s *cureScene) claim() {
	s.t.Helper()
	s.pv.Claim = s.name
	s.must(s.world.Cluster.Create(s.ctx, s.pv, testbed.PersistentVolumeClaim{Name: s.name, PersistentVolume: s.name}))
}

// loseNode has the volume attached for a Pod, whose node then stops. The Pod is evicted, and a new one is on another node.
func (s *cureScene) loseNode() {
	s.t.Helper()
	second := s.name + "-node2"
	s.must(s.world.Cluster.Create(s.ctx, testbed.Node{Name: second}, s.world.CSINode(second)))
	s.claim()
	before := testbed.Pod{Name: s.name + "-old", Node: s.node, Claims: []string{s.name}}
	s.must(s.world.Cluster.Create(s.ctx, before))
	s.waitAttachedTo(s.node)
	// Without a running container, the attach-detach controller takes a Pod that is being deleted for one that has ended.
	running := fmt.Sprintf(`{"status":{"phase":"Running","containerStatuses":[{"name":"main","image":"none","imageID":"","ready":true,"restartCount":0,"state":{"running":{"startedAt":%q}}}]}}`, time.Now().UTC().Format(time.RFC3339))
	_, err := s.kube.CoreV1().Pods(metav1.NamespaceDefault).Patch(s.ctx, before.Name, types.MergePatchType, []byte(running), metav1.PatchOptions{}, "status")
	s.must(err)
	status := fmt.Sprintf(`{"status":{"volumesInUse":["kubernetes.io/csi/%s^%s"],"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","message":"kubelet stopped posting node status"}]}}`, s.driver.Name, s.pv.Name)
	_, err = s.kube.CoreV1().Nodes().Patch(s.ctx, s.node, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	s.must(err)
	s.must(s.kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(s.ctx, before.Name, metav1.DeleteOptions{}))
	s.must(s.world.Cluster.Create(s.ctx, testbed.Pod{Name: s.name + "-new", Node: second, Claims: []string{s.name}}))
}

// waitAttachedTo blocks until the scene's volume is attached to a node, and to no other.
func (s *cureScene) waitAttachedTo(node string) {
	s.t.Helper()
	s.must(s.world.Attachments.WaitFor(s.ctx, "the volume is attached to "+node, func(all []*storagev1.VolumeAttachment) bool {
		nodes := map[string]bool{}
		for _, va := range all {
			if va.Spec.Attacher == s.driver.Name {
				nodes[va.Spec.NodeName] = va.Status.Attached
			}
		}
		return len(nodes) == 1 && nodes[node]
	}))
}

// waitNothingAsked blocks until no VolumeAttachment of the driver is left.
func (s *cureScene) waitNothingAsked() {
	s.t.Helper()
	s.must(s.world.Attachments.WaitFor(s.ctx, "no VolumeAttachment is left", func(all []*storagev1.VolumeAttachment) bool {
		for _, va := range all {
			if va.Spec.Attacher == s.driver.Name {
				return false
			}
		}
		return true
	}))
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
