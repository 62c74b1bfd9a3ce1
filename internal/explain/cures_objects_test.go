package explain_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// objectCures are those of the objects of Kubernetes around a volume.
var objectCures = []cure{
	{
		name:    "CSINode without the driver",
		prepare: (*cureScene).playNodePlugin,
		breaks:  func(s *cureScene) { s.must(s.register(s.ctx)) },
		verdict: diagnosis.NodeWithoutDriver, object: "CSINode {name}-node", words: []string{"driver {name} is not registered"},
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
		name: "PV gone",
		ask: func(s *cureScene) string {
			pvs := s.kube.CoreV1().PersistentVolumes()
			s.must(s.world.Cluster.Create(s.ctx, s.pv))
			s.must(pvs.Delete(s.ctx, s.pv.Name, metav1.DeleteOptions{}))
			s.must(s.world.Cluster.Create(s.ctx, testbed.VolumeAttachment{Name: s.name, Driver: s.driver.Name, Node: s.node, PersistentVolume: s.pv.Name}))
			return s.name
		},
		verdict: diagnosis.VolumeMissing, object: "PersistentVolume {name}", words: []string{"does not exist"},
		cured: (*cureScene).waitNothingAsked, well: "driver/{name}",
	},
	{
		name:   "APF or webhook refusing writes",
		breaks: (*cureScene).breakWebhook,
		ask: func(s *cureScene) string {
			s.must(s.world.Cluster.Create(s.ctx, testbed.VolumeAttachment{Name: s.name, Driver: s.driver.Name, Node: s.node, PersistentVolume: s.pv.Name}))
			return s.name
		},
		verdict: diagnosis.WebhookFailed, object: "ValidatingWebhookConfiguration {name}", words: []string{"failed calling webhook", "guard.{name}.example.com"},
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

// register makes exactly these drivers the registered ones of the node, as its kubelet does.
func (s *cureScene) register(ctx context.Context, drivers ...string) error {
	list := []string{}
	for _, name := range drivers {
		list = append(list, fmt.Sprintf(`{"name":%q,"nodeID":%q}`, name, testbed.NodeID(s.node)))
	}
	patch := `{"spec":{"drivers":[` + strings.Join(list, ",") + `]}}`
	_, err := s.kube.StorageV1().CSINodes().Patch(ctx, s.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// playNodePlugin makes the driver's DaemonSet, with a Pod on the node that registers the driver when it starts.
func (s *cureScene) playNodePlugin() {
	s.t.Helper()
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "csi-node"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "csi-driver", Image: "registry.example/driver:v1", Args: []string{"--drivername=" + s.driver.Name}},
		{Name: "node-driver-registrar", Image: "registry.example/registrar:v2", Args: []string{"--kubelet-registration-path=/var/lib/kubelet/plugins/" + s.driver.Name + "/csi.sock"}},
	}}}
	set, err := s.kube.AppsV1().DaemonSets(s.name).Create(s.ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "csi-node"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}, metav1.CreateOptions{})
	s.must(err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "csi-node-x7k2p", Labels: template.Labels}, Spec: template.Spec}
	pod.Spec.NodeName = s.node
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	s.playPod(pod, func(ctx context.Context) error { return s.register(ctx, s.driver.Name) })
}

// playStatefulSetPod makes a claim and a Pod of a StatefulSet that uses it, which has been waiting on its node for minutes.
func (s *cureScene) playStatefulSetPod() (question string) {
	s.t.Helper()
	s.claim()
	pod := testbed.Pod{Name: s.name + "-0", Node: s.node, Claims: []string{s.name}}.Build()
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: s.name, UID: types.UID(s.name), Controller: ptr.To(true)}}
	since := metav1.NewTime(time.Now().Add(-5 * time.Minute))
	s.playPod(pod, func(ctx context.Context) error {
		status := fmt.Sprintf(`{"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True","lastTransitionTime":%q}]}}`, since.UTC().Format(time.RFC3339))
		_, err := s.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
		return err
	})
	return "pod/default/" + pod.Name
}

// playPod does for a Pod what its controller and kubelet do: it makes it, ends it when it is deleted and makes it again.
// started is called after each start. The Pod is there when it returns.
func (s *cureScene) playPod(pod *corev1.Pod, started func(context.Context) error) {
	s.t.Helper()
	pods := s.kube.CoreV1().Pods(pod.Namespace)
	running := make(chan struct{}, 1)
	s.play(func(ctx context.Context) {
		switch is, err := pods.Get(ctx, pod.Name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err == nil {
				err = started(ctx)
				if err != nil && ctx.Err() == nil {
					s.t.Error(err)
				}
				select {
				case running <- struct{}{}:
				default:
				}
			}
		case err == nil && is.DeletionTimestamp != nil:
			_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}) // the next step sees whether it worked
		}
	}, func() {})
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

// breakWebhook makes an admission webhook for the scene's PersistentVolume whose Service is away. It returns when the API
// server asks it.
func (s *cureScene) breakWebhook() {
	s.t.Helper()
	hook := admissionv1.ValidatingWebhook{
		Name: "guard." + s.name + ".example.com", FailurePolicy: ptr.To(admissionv1.Fail), SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		ClientConfig:    admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: s.name, Name: "guard"}},
		Rules:           []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Update}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"}}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "only-of-this-test", Expression: fmt.Sprintf("object.metadata.name == %q", s.pv.Name)}},
	}
	configs := s.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := configs.Create(s.ctx, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Webhooks: []admissionv1.ValidatingWebhook{hook}}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { // it outlives the scene otherwise
		if err := configs.Delete(context.Background(), s.name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	s.must(s.world.Cluster.Create(s.ctx, s.pv))
	s.until("the API server asks the webhook", func() bool {
		_, err = s.kube.CoreV1().PersistentVolumes().Patch(s.ctx, s.pv.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	}, func() string { return fmt.Sprint(err) })
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
