package explain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// mostSteps is how many steps the timeline of a volume has.
const mostSteps = 100

// timeline returns where the time of an attach or a detach went, nil if nothing is known of it. The objects have the
// events outside of the hub, the hub has its own steps.
func (w *walk) timeline() *status.Timeline {
	steps := w.steps()
	slices.SortStableFunc(steps, func(a, b status.Step) int { return a.Time.Compare(b.Time) })
	t := status.NewTimeline(steps, w.report.Result != Attached, w.Now, mostSteps)
	if len(t.Rows) == 0 {
		return nil
	}
	return &t
}

func (w *walk) steps() []status.Step {
	va, pod := w.Attachment.Value(), w.waitingPod()
	switch {
	case va != nil && va.DeletionTimestamp != nil:
		return w.operation(event("VolumeAttachment "+va.Name+" marked for deletion", va.DeletionTimestamp.Time), "the detach")
	case va == nil && pod == nil:
		return nil
	case va == nil:
		return append(podSteps(pod, w.toAttach(pod)), w.kubeletSteps(pod, time.Time{})...)
	}
	created, attached := va.CreationTimestamp.Time, w.attachedAt(va)
	switch {
	case pod == nil:
	case attached.IsZero() || !pod.CreationTimestamp.After(attached):
		steps := append(podSteps(pod, ""), w.operation(event("VolumeAttachment "+va.Name+" created"+createdBy(va), created), "the attach")...)
		if scheduled := scheduledAt(pod); !scheduled.IsZero() && created.Sub(scheduled) >= time.Second {
			steps = append(steps, waited("kube-controller-manager to create the VolumeAttachment", scheduled, created))
		}
		return append(steps, w.kubeletSteps(pod, attached)...)
	case w.Question.Kind == Pod: // the volume was attached for an earlier Pod
		steps := append(podSteps(pod, ""), event("volume attached before", pod.CreationTimestamp.Time))
		return append(steps, w.kubeletSteps(pod, scheduledAt(pod))...)
	}
	return w.operation(event("VolumeAttachment "+va.Name+" created"+createdBy(va), created), "the attach")
}

// operation returns the steps of the attach or the detach that an event has begun. Without the hub's steps, the rest of
// the operation is one wait.
func (w *walk) operation(begin status.Step, rest string) []status.Step {
	steps := []status.Step{begin}
	var known []status.Step
	if seen := w.Seen.Value(); seen != nil {
		known = slices.DeleteFunc(slices.Clone(seen.Steps), func(s status.Step) bool { return s.Kind == status.StepCreated || s.Kind == status.StepDone })
	}
	if len(known) > 0 {
		steps = append(steps, notBefore(known, begin.Time)...)
	}
	va := w.Attachment.Value()
	attached := w.attachedAt(va)
	switch {
	case va.DeletionTimestamp == nil && va.Status.Attached:
		if !attached.IsZero() {
			steps = append(steps, event("volume attached to node "+va.Spec.NodeName, attached))
		}
	case len(known) == 0:
		steps = append(steps, waited(rest, begin.Time, time.Time{}))
	}
	return steps
}

// notBefore moves steps so that the first is not before a time: the clock of the hub may differ from the clock of the
// API server.
func notBefore(steps []status.Step, begin time.Time) []status.Step {
	shift := max(0, begin.Sub(steps[0].Time))
	for i := range steps {
		steps[i].Time = steps[i].Time.Add(shift)
		if !steps[i].Until.IsZero() {
			steps[i].Until = steps[i].Until.Add(shift)
		}
	}
	return steps
}

// attachedAt returns when a VolumeAttachment was marked attached: as the hub has recorded it, else when its status was
// written last. It is zero if neither is known, or if it is not attached.
func (w *walk) attachedAt(va *storagev1.VolumeAttachment) time.Time {
	var written time.Time
	if !va.Status.Attached || va.DeletionTimestamp != nil {
		return written
	}
	for _, f := range va.ManagedFields {
		if f.Subresource == "status" && f.Time != nil && f.Time.After(written) {
			written = f.Time.Time
		}
	}
	if seen := w.Seen.Value(); seen != nil && len(seen.Steps) > 0 {
		if last := seen.Steps[len(seen.Steps)-1]; last.Kind == status.StepDone {
			return notBefore([]status.Step{last}, va.CreationTimestamp.Time)[0].Time
		}
	}
	return written
}

// createdBy names the program that has created an object, "" if it is not known.
func createdBy(va *storagev1.VolumeAttachment) string {
	for _, f := range va.ManagedFields {
		if f.Time != nil && f.Subresource == "" && f.Time.Equal(&va.CreationTimestamp) {
			return " by " + f.Manager
		}
	}
	return ""
}

// waitingPod returns the Pod of the question, else the Pod on the node if only one uses the volume.
func (w *walk) waitingPod() *corev1.Pod {
	if w.Pod != nil {
		return w.Pod
	}
	here := slices.DeleteFunc(slices.Clone(items(w.Users)), func(p corev1.Pod) bool { return p.Spec.NodeName != w.NodeName || p.Spec.NodeName == "" })
	if len(here) != 1 {
		return nil
	}
	return &here[0]
}

// toAttach returns what a Pod waits for whose volume has no VolumeAttachment yet, "" if the volume needs none.
func (w *walk) toAttach(pod *corev1.Pod) string {
	if w.report.Result == Attached || pod.Spec.NodeName == "" {
		return ""
	}
	return "kube-controller-manager to create a VolumeAttachment"
}

// podSteps returns how a Pod came to its node, and what it waits for since then if that is given.
func podSteps(p *corev1.Pod, then string) []status.Step {
	created, scheduled := p.CreationTimestamp.Time, scheduledAt(p)
	steps := []status.Step{event("Pod "+p.Namespace+"/"+p.Name+" created", created)}
	switch {
	case p.Spec.NodeName == "":
		return append(steps, waited("the scheduler", created, time.Time{}))
	case scheduled.IsZero(): // bound by another way than the scheduler
		scheduled = created
	default:
		if scheduled.Sub(created) >= time.Second {
			steps = append(steps, waited("the scheduler", created, scheduled))
		}
		steps = append(steps, event("Pod scheduled to node "+p.Spec.NodeName, scheduled))
	}
	if then != "" {
		steps = append(steps, waited(then, scheduled, time.Time{}))
	}
	return steps
}

func scheduledAt(p *corev1.Pod) time.Time { return conditionSince(p, corev1.PodScheduled) }

// conditionSince returns since when a condition of a Pod is true, zero if it is not.
func conditionSince(p *corev1.Pod, kind corev1.PodConditionType) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// kubeletSteps returns what a Pod waits for after its volume was attached. The kubelet mounts all volumes before it
// starts the sandbox of the Pod, which sets the condition PodReadyToStartContainers:
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-has-network
func (w *walk) kubeletSteps(p *corev1.Pod, attached time.Time) []status.Step {
	if attached.IsZero() || w.report.Result != Attached {
		return nil
	}
	mount := "the kubelet of node " + p.Spec.NodeName + " to mount the volumes"
	mounted := conditionSince(p, corev1.PodReadyToStartContainers)
	switch {
	case mounted.IsZero() && p.Status.Phase == corev1.PodPending:
		return []status.Step{waited(mount, attached, time.Time{})}
	case mounted.IsZero() || mounted.Before(attached):
		return nil
	}
	steps := []status.Step{waited(mount, attached, mounted), event("volumes mounted, Pod sandbox started", mounted)}
	if p.Status.Phase == corev1.PodPending {
		steps = append(steps, waited("the containers of the Pod to start", mounted, time.Time{}))
	}
	return steps
}

func event(what string, t time.Time) status.Step {
	return status.Step{Kind: status.StepEvent, What: what, Time: t}
}

func waited(what string, from, until time.Time) status.Step {
	return status.Step{Kind: status.StepWaited, What: what, Time: from, Until: until}
}
