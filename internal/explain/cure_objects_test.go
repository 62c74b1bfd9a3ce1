package explain

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// holder has the volume on node-2, which is not ready.
func (s *situation) holder(taints ...corev1.Taint) {
	s.other(noChange)
	s.v.OtherNode = Present(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}, Spec: corev1.NodeSpec{Taints: taints}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: before(time.Minute)}}}})
}

// noAttachFor has the driver's CSIDriver forbid attaching, and a Pod wait on the node for so long.
func (s *situation) noAttachFor(waits time.Duration, change func(*corev1.Pod)) {
	s.ofPod()
	s.served.Capabilities = []string{publishCapability}
	s.v.CSIDriver = Present(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}})
	s.Pod.CreationTimestamp, s.Pod.Status.Phase = before(waits), corev1.PodPending
	change(s.Pod)
}

const replaceCSIDriver = `kubectl get csidriver csi.example.com -o json | kubectl patch --local -f - --type=merge -p '{"spec":{"attachRequired":true}}' -o json | kubectl replace --force -f -`

func TestCommandsAreThoseThatTheObjectsAllow(t *testing.T) {
	gone := func(s *situation) {
		s.v.Node, s.v.CSINode = Absent[corev1.Node](), Absent[storagev1.CSINode]()
	}
	pod := func(name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	}
	for _, tt := range []struct {
		name     string
		change   func(*situation)
		want     diagnosis.Verdict // empty: attached
		next     string            // in what to do, "|" between several
		commands string
	}{
		{"Pods are bound to a node that is gone", func(s *situation) {
			gone(s)
			other := pod("other")
			other.Spec.NodeName = "node-3"
			s.v.Users = Present(&[]corev1.Pod{pod("web"), other})
		}, diagnosis.NodeMissing, "", "kubectl -n default delete pod web --wait=false\nkubectl delete volumeattachment csi-1"},
		{"a PersistentVolume that is gone is to be detached, and its handle is not known", func(s *situation) {
			s.deleted()
			s.va.Annotations = nil
			s.v.PersistentVolume = Absent[corev1.PersistentVolume]()
		}, diagnosis.VolumeMissing, "Remove the finalizer only if", ""},
		{"the node that has the volume is not ready", func(s *situation) { s.holder() }, diagnosis.AttachedToNotReadyNode,
			"Make sure that the machine of node node-2 is off|kubectl taint nodes node-2 node.kubernetes.io/out-of-service-.", "kubectl taint nodes node-2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"},
		{"the node that has the volume is out of service", func(s *situation) { s.holder(corev1.Taint{Key: corev1.TaintNodeOutOfService}) }, diagnosis.AttachedToNotReadyNode, "Wait: the node has the taint", ""},
		{"the node that has the volume could not be read", func(s *situation) { s.other(noChange) }, diagnosis.AttachedElsewhere, "", ""},
		{"a Pod waits for a mount that needs an attach", func(s *situation) {
			s.noAttachFor(5*time.Minute, func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Controller: ptr.To(true)}}
			})
		}, diagnosis.AttachRequiredWrong, "cannot be changed", replaceCSIDriver + "\nkubectl -n default delete pod web"},
		{"a Pod without a controller waits for such a mount", func(s *situation) { s.noAttachFor(5*time.Minute, func(*corev1.Pod) {}) }, diagnosis.AttachRequiredWrong,
			"Delete Pod default/web and create it again", replaceCSIDriver},
		{"a Pod waits for its image", func(s *situation) {
			s.noAttachFor(5*time.Minute, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			})
		}, "", "", ""},
		{"a Pod is about to start", func(s *situation) { s.noAttachFor(20*time.Second, func(*corev1.Pod) {}) }, "", "", ""},
		{"a Pod runs", func(s *situation) {
			s.noAttachFor(5*time.Minute, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
		}, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := waiting()
			tt.change(s)
			report := Explain(s.Facts)
			stop := report.Volumes[0].Stop
			if tt.want == "" {
				if stop != nil || report.Result != Attached {
					t.Errorf("got %s, %+v; want attached", report.Result, stop)
				}
				return
			}
			if stop == nil || stop.Verdict != tt.want {
				t.Fatalf("got %+v, want %s", stop, tt.want)
			}
			if got := strings.Join(stop.Commands, "\n"); got != tt.commands {
				t.Errorf("the commands are\n%s\nwant\n%s", got, tt.commands)
			}
			for _, words := range strings.Split(tt.next, "|") {
				if !strings.Contains(stop.Next, words) {
					t.Errorf("%q lacks %q", stop.Next, words)
				}
			}
		})
	}
}

// Each VolumeAttachment of a group is withdrawn by a command of its own.
func TestGroupHasTheCommandsOfItsVolumes(t *testing.T) {
	s := waiting()
	s.Question, s.Subject = Question{Kind: Driver, Name: driver}, &Volume{Driver: driver, Served: s.served}
	second := *s.v
	va := s.va.DeepCopy()
	va.Name = "csi-2"
	second.Attachment = Present(va)
	s.Volumes = append(s.Volumes, second)
	for i := range s.Volumes {
		s.Volumes[i].Node, s.Volumes[i].CSINode = Absent[corev1.Node](), Absent[storagev1.CSINode]()
	}
	groups := Explain(s.Facts).Groups
	if len(groups) != 1 || strings.Join(groups[0].Cause.Commands, "\n") != "kubectl delete volumeattachment csi-1\nkubectl delete volumeattachment csi-2" {
		t.Errorf("got %+v", groups[0].Cause)
	}
}
