package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// at is a time after the VolumeAttachment was created.
func at(s *situation, d time.Duration) time.Time { return s.va.CreationTimestamp.Add(d) }

// stepsUntilCall are what a hub records: it has called the driver 31 s after the VolumeAttachment was created.
func stepsUntilCall(s *situation) []status.Step {
	return []status.Step{
		{Kind: status.StepCreated, Time: at(s, 0)}, {Kind: status.StepSeen, Time: at(s, 20*time.Millisecond)},
		{Kind: status.StepWaited, What: "a worker of the driver", Time: at(s, 20*time.Millisecond), Until: at(s, 30*time.Second)},
		{Kind: status.StepWrote, What: "the finalizers", Time: at(s, 30*time.Second), Until: at(s, 31*time.Second)},
		{Kind: status.StepCalled, What: "ControllerPublishVolume", Time: at(s, 31*time.Second)},
	}
}

// askedByPod has the question asked for a Pod that was created 12 s before the VolumeAttachment and scheduled 2 s later.
func askedByPod(s *situation) *corev1.Pod {
	condition := func(kind corev1.PodConditionType, age time.Duration) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: before(age)}
	}
	s.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", CreationTimestamp: before(52 * time.Second)},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{condition(corev1.PodScheduled, 50*time.Second)}}}
	s.Question, s.v.Mount = Question{Kind: Pod, Namespace: "default", Name: "web"}, "data"
	s.va.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Time: &s.va.CreationTimestamp}}
	return s.Pod
}

// attachedAfter has the volume attached since a time after the VolumeAttachment was created.
func attachedAfter(s *situation, d time.Duration) {
	written := metav1.NewTime(at(s, d))
	s.va.Status.Attached = true
	s.va.ManagedFields = append(s.va.ManagedFields, metav1.ManagedFieldsEntry{Manager: "csi-attach-hub", Subresource: "status", Time: &written})
}

func timelineOf(s *situation) string {
	v := Explain(s.Facts).Volumes[0]
	if v.Timeline == nil {
		return ""
	}
	var lines []string
	for _, r := range v.Timeline.Rows {
		lines = append(lines, strings.Join(strings.Fields(fmt.Sprint(r.Beginning(), " ", r.Length(), " ", r.Text, " ", r.Error)), " "))
	}
	return strings.Join(append(lines, v.Timeline.Most), "\n")
}

func TestTheTimelineLeadsFromThePodToWhatItWaitsForNow(t *testing.T) {
	const pod = "0s Pod default/web created\n0s 2s waited for the scheduler\n2s Pod scheduled to node node-1\n"
	const untilVA = pod + "2s 10s waited for kube-controller-manager to create the VolumeAttachment\n12s VolumeAttachment csi-1 created by kube-controller-manager\n"
	const hub = "12s seen by the hub\n12s 29s waited for a worker of the driver\n42s 1s wrote the finalizers\n"
	for _, tt := range []struct {
		name   string
		change func(*situation)
		want   string
	}{
		{"a call is in flight", func(s *situation) { s.seen.Steps = stepsUntilCall(s); askedByPod(s) },
			untilVA + hub + "43s 9s calls ControllerPublishVolume\nwaited 29s of 52s for a worker of the driver"},
		{"an earlier hub", func(s *situation) { askedByPod(s) },
			untilVA + "12s 40s waits for the attach\nwaited 40s of 52s for the attach"},
		{"no hub", func(s *situation) { askedByPod(s); s.alone() },
			untilVA + "12s 40s waits for the attach\nwaited 40s of 52s for the attach"},
		{"no VolumeAttachment", func(s *situation) { askedByPod(s); s.v.Attachment = Absent[storagev1.VolumeAttachment]() },
			pod + "2s 50s waits for kube-controller-manager to create a VolumeAttachment\nwaited 50s of 52s for kube-controller-manager to create a VolumeAttachment"},
		{"not scheduled", func(s *situation) {
			askedByPod(s).Spec.NodeName, s.v.NodeName = "", ""
			s.v.Attachment = Absent[storagev1.VolumeAttachment]()
		}, "0s Pod default/web created\n0s 52s waits for the scheduler\nwaited 52s of 52s for the scheduler"},
		{"attached, and not mounted", func(s *situation) {
			askedByPod(s)
			s.seen.Steps = stepsUntilCall(s)
			s.seen.Steps[4].Until = at(s, 32*time.Second)
			s.seen.Steps = append(s.seen.Steps, status.Step{Kind: status.StepDone, Time: at(s, 32*time.Second)})
			s.va.Status.Attached = true
		}, untilVA + hub + "43s 1s called ControllerPublishVolume\n44s volume attached to node node-1\n44s 8s waits for the kubelet of node node-1 to mount the volumes\nwaited 29s of 52s for a worker of the driver"},
		{"mounted, without a hub", func(s *situation) {
			p := askedByPod(s)
			attachedAfter(s, 5*time.Second)
			s.alone()
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: before(20 * time.Second)})
		}, untilVA + "17s volume attached to node node-1\n17s 15s waited for the kubelet of node node-1 to mount the volumes\n32s volumes mounted, Pod sandbox started\n32s 20s waits for the containers of the Pod to start\nwaited 20s of 52s for the containers of the Pod to start"},
		{"attached for an earlier Pod", func(s *situation) {
			s.va.CreationTimestamp = before(time.Hour)
			attachedAfter(s, time.Second)
			askedByPod(s)
			attachedAfter(s, time.Second)
		}, "0s Pod default/web created\n0s 2s waited for the scheduler\n0s volume attached before\n2s Pod scheduled to node node-1\n2s 50s waits for the kubelet of node node-1 to mount the volumes\nwaited 50s of 52s for the kubelet of node node-1 to mount the volumes"},
		{"asked about the VolumeAttachment of a Pod that came later", func(s *situation) {
			s.va.CreationTimestamp = before(time.Hour)
			attachedAfter(s, time.Second)
			p := askedByPod(s)
			attachedAfter(s, time.Second)
			s.Pod, s.v.Mount, s.Question, s.v.Users = nil, "", Question{Kind: VolumeAttachment, Name: "csi-1"}, Present(&[]corev1.Pod{*p})
		}, "0s VolumeAttachment csi-1 created by kube-controller-manager\n1s volume attached to node node-1\n"},
		{"the VolumeAttachment of a Pod", func(s *situation) {
			p := askedByPod(s)
			s.Pod, s.v.Mount, s.Question, s.v.Users = nil, "", Question{Kind: VolumeAttachment, Name: "csi-1"}, Present(&[]corev1.Pod{*p})
		}, untilVA + "12s 40s waits for the attach\nwaited 40s of 52s for the attach"},
		{"two Pods use it", func(s *situation) {
			p := askedByPod(s)
			s.Pod, s.v.Mount, s.Question, s.v.Users = nil, "", Question{Kind: VolumeAttachment, Name: "csi-1"}, Present(&[]corev1.Pod{*p, *p})
		}, "0s VolumeAttachment csi-1 created by kube-controller-manager\n0s 40s waits for the attach\nwaited 40s of 40s for the attach"},
		{"a detach", func(s *situation) { s.deleted() },
			"0s VolumeAttachment csi-1 marked for deletion\n0s 30s waits for the detach\nwaited 30s of 30s for the detach"},
		{"the hub's clock is a minute late", func(s *situation) {
			s.seen.Steps = stepsUntilCall(s)
			for i := range s.seen.Steps {
				s.seen.Steps[i].Time = s.seen.Steps[i].Time.Add(-time.Minute)
				if !s.seen.Steps[i].Until.IsZero() {
					s.seen.Steps[i].Until = s.seen.Steps[i].Until.Add(-time.Minute)
				}
			}
		}, "0s VolumeAttachment csi-1 created\n0s seen by the hub\n0s 29s waited for a worker of the driver\n29s 1s wrote the finalizers\n30s 9s calls ControllerPublishVolume\nwaited 29s of 40s for a worker of the driver"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := waiting()
			tt.change(s)
			if got := timelineOf(s); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestAQuestionAboutManyVolumesHasNoTimelines(t *testing.T) {
	s := waiting()
	s.Question = Question{Kind: AllStuck}
	if text := Explain(s.Facts).Text(); strings.Contains(text, "Timeline") {
		t.Error(text)
	}
}

// The cause has to stay on the screen: a timeline has few lines, after all causes.
func TestATimelineStaysShortAndBehindTheCause(t *testing.T) {
	s := waiting()
	hostile := "\x1b[31m\u202e" + strings.Repeat("x", 10000)
	for i := range 500 {
		s.seen.Steps = append(s.seen.Steps, status.Step{Kind: status.StepCalled, What: fmt.Sprint(i, hostile), Error: hostile, Time: at(s, time.Duration(i)*time.Millisecond), Until: at(s, time.Duration(i+1)*time.Millisecond)})
	}
	for range 9 {
		s.Volumes = append(s.Volumes, *s.v)
	}
	r := Explain(s.Facts)
	text := r.Text()
	causes, timelines, found := strings.Cut(text, "\nTimeline of ")
	if !found || strings.Contains(timelines, "STOP") || strings.Count(causes, "STOP") != 10 {
		t.Errorf("the timelines are not behind the causes:\n%.2000s", text)
	}
	if lines := strings.Count(timelines, "\n"); lines > mostTimelines*(mostLines+3) || len(timelines) > 20<<10 || strings.ContainsAny(timelines, "\x1b\u202e") {
		t.Errorf("%d lines, %d bytes: %.500q", lines, len(timelines), timelines)
	}
	if out, err := json.Marshal(r.Volumes[0].Timeline); err != nil || len(r.Volumes[0].Timeline.Rows) > mostSteps {
		t.Errorf("%.200s %v", out, err)
	}
}
