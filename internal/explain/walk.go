package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// Explain says for each volume of a question whether it is attached, where it stops and what to do.
// It reads only the facts.
func Explain(f Facts) Report {
	r := Report{Question: f.Question, Result: Attached, Volumes: []VolumeReport{}, Unknown: unknown(f)}
	switch {
	case !f.Found:
		r.Result = NotFound
		r.Stop = notFound(&f)
		return r
	case f.Question.Kind == Driver || f.Question.Kind == Node:
		return explainMany(&f, r)
	case f.Pod != nil && finished(f.Pod):
		r.Stop = new(found(diagnosis.PodFinished, f.Question.String(), fmt.Sprintf("has ended (%s): its volumes are detached unless another Pod uses them", f.Pod.Status.Phase), "Do nothing."))
		return r
	case len(f.Volumes) == 0:
		r.Stop = new(found(diagnosis.NothingToAttach, f.Question.String(), "has no volume that needs an attach", "If the Pod does not start, look at its Events: attaching is not the reason."))
		return r
	}
	for i := range f.Volumes {
		v := explainVolume(&f, i)
		if v.Result == Waiting || r.Result == Attached {
			r.Result = v.Result
		}
		r.Volumes = append(r.Volumes, v)
	}
	slices.SortStableFunc(r.Volumes, func(a, b VolumeReport) int { return cmp.Compare(b.Result.ExitCode(), a.Result.ExitCode()) })
	return r
}

// explainMany answers a question about a driver or a node.
func explainMany(f *Facts, r Report) Report {
	r.Groups, r.More = groups(f), f.More
	worst := status.Fine
	if len(r.Groups) > 0 {
		worst = r.Groups[0].Health
	}
	switch r.Result = Result(worst); f.Question.Kind {
	case Driver:
		r.Subject, r.Result = explainDriver(f, worst)
	case Node:
		r.Subject, r.Result = explainNode(f, r.Groups, worst)
	}
	return r
}

// finished reports whether a Pod has ended for good.
func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// walk follows one volume from the Pod to the last error.
type walk struct {
	*Facts
	*Volume
	report      VolumeReport
	lastResorts []Finding // see later
	// claimFault is the problem of the claim if the question is about the PersistentVolume or the
	// VolumeAttachment. Without a VolumeAttachment it is the stop, else a note: attachers do not
	// look at claims.
	claimFault *Finding
}

// explainVolume explains the i-th volume.
func explainVolume(f *Facts, i int) VolumeReport {
	v := &f.Volumes[i]
	w := &walk{Facts: f, Volume: v, report: VolumeReport{Title: title(v), Result: Waiting, Path: []string{}}}
	if w.podStage() && w.claimStage() && w.volumeStage() {
		w.attachmentStage()
	}
	if w.report.Stop != nil {
		w.cure(w.report.Stop)
	}
	w.leftAttached(f.Volumes[:i])
	w.healthNotes()
	if w.report.Result == Waiting && w.report.Stop == nil {
		w.report.Result = NotKnown
	}
	if w.report.Result != Attached {
		w.report.Age = ageOf(v.asked(), f.Now)
	}
	return w.report
}

func title(v *Volume) string {
	var parts []string
	if v.Mount != "" {
		parts = append(parts, "volume "+v.Mount)
	}
	if v.ClaimName != "" {
		parts = append(parts, "claim "+v.Namespace+"/"+v.ClaimName)
	}
	if v.VolumeName != "" {
		parts = append(parts, "PersistentVolume "+v.VolumeName)
	}
	if len(parts) == 0 {
		parts = append(parts, "inline volume")
	}
	text := strings.Join(parts, ", ")
	if v.NodeName != "" {
		text += " on node " + v.NodeName
	}
	return text
}

// ok adds a step that is as it should be.
func (w *walk) ok(format string, args ...any) {
	w.report.Path = append(w.report.Path, fmt.Sprintf(format, args...))
}

// stop adds a problem. The first problem is the stop, further ones are notes.
func (w *walk) stop(f Finding) {
	if w.report.Stop != nil {
		w.note(f)
		return
	}
	w.report.Stop = &f
}

func (w *walk) note(f Finding) { w.report.Notes = append(w.report.Notes, f) }

// done sets the result Attached unless the walk has stopped before.
func (w *walk) done() {
	if w.report.Stop == nil {
		w.report.Result = Attached
	}
}

func (w *walk) ago(t time.Time) string { return diagnosis.Ago(t, w.Now) }

func (w *walk) at(t time.Time) string { return diagnosis.At(t, w.Now) }

// podStage checks that the Pod of the question has a node.
func (w *walk) podStage() bool {
	if w.Inline != "" {
		w.ok("the volume is defined inline in the Pod (CSI driver %s): the kubelet mounts it, and nothing has to be attached", w.Inline)
		w.done()
		return false
	}
	if w.Pod == nil {
		return true
	}
	if w.Pod.Spec.NodeName != "" {
		w.ok("%s is bound to node %s", w.Question, w.Pod.Spec.NodeName)
		return true
	}
	fact := "not scheduled to a node yet"
	for _, c := range w.Pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			fact += ": " + c.Message
		}
	}
	w.stop(found(diagnosis.PodNotScheduled, w.Question.String(), fact, "Look at the Pod's Events: a volume is attached only after the scheduler has found a node."))
	return true // its claims may be why
}

// volumeStage checks that the PersistentVolume exists and is of a CSI driver that attaches.
func (w *walk) volumeStage() bool {
	if w.VolumeName == "" {
		return w.Attachment.Value() != nil || w.Migrated != nil // inline
	}
	object := ref(PersistentVolume, "", w.VolumeName)
	pv := w.PersistentVolume.Value()
	switch {
	case pv == nil && w.Attachment.Value() != nil:
		return true // it names the driver; attaching and detaching say what is missing
	case w.PersistentVolume.Missing():
		w.stop(found(diagnosis.VolumeMissing, object, "does not exist, and the claim is bound to it", "Restore the PersistentVolume, or create the claim again."))
		return false
	case pv == nil:
		return false // unknown says why it was not read
	case w.Driver == "":
		w.stop(found(diagnosis.VolumeNotCSI, object, "neither a CSI volume nor migrated to CSI", "Look at kube-controller-manager and at the kubelet: CSI does not attach this volume."))
		return false
	}
	w.ok("%s is a volume of CSI driver %s, handle %s", object, w.Driver, cmp.Or(attach.VolumeHandle(pv), "unknown"))
	if bound := pv.Spec.ClaimRef; w.askedByClaim() && !w.ofThisClaim() {
		w.stop(found(diagnosis.VolumeOfAnother, object, fmt.Sprintf("bound to another claim: %s/%s, UID %s", bound.Namespace, bound.Name, bound.UID), "Create the claim again, or remove the stale claimRef from the PersistentVolume."))
	}
	return true
}

// attachmentStage checks that a VolumeAttachment asks for the volume on the node, and that it is attached.
func (w *walk) attachmentStage() {
	va := w.Attachment.Value()
	if va != nil && w.claimFault != nil {
		w.note(*w.claimFault)
	}
	switch {
	case va == nil:
		w.notAsked()
	case va.DeletionTimestamp != nil:
		w.ok("%s was deleted %s: the volume has to be detached from node %s", w.attachmentRef(), w.ago(va.DeletionTimestamp.Time), va.Spec.NodeName)
		w.detaching(va)
	case va.Status.Attached:
		w.attached(va)
	case w.noAttach():
		w.note(found(diagnosis.AttachNotRequired, "CSIDriver "+w.Driver, "has attachRequired: false: volumes of this driver need no attach", "Delete the VolumeAttachment if it stays."))
		w.done()
	default:
		w.ok("%s asks for the volume on node %s since %s", w.attachmentRef(), va.Spec.NodeName, w.at(va.CreationTimestamp.Time))
		w.attaching(va)
	}
}

// noAttach reports whether the CSIDriver says attachRequired: false.
func (w *walk) noAttach() bool {
	d := w.CSIDriver.Value()
	return d != nil && !ptr.Deref(d.Spec.AttachRequired, true)
}

func (w *walk) attachmentRef() string { return ref(VolumeAttachment, "", w.Attachment.Value().Name) }

// attached notes the risks of an attached volume.
func (w *walk) attached(va *storagev1.VolumeAttachment) {
	w.ok("%s says that the volume is attached to node %s", w.attachmentRef(), va.Spec.NodeName)
	finalizer := attach.Finalizer(va.Spec.Attacher)
	if va.Annotations[attach.AnnotationNodeID] != "" && !attach.HasFinalizer(va.Finalizers, finalizer) {
		w.note(found(diagnosis.FinalizerOfAnother, w.attachmentRef(), "finalizer "+finalizer+" was removed: if the object is deleted now, its volume stays attached", "Check that an attacher works for the driver: it adds the finalizer again."))
	}
	if w.Served != nil {
		w.capabilityNote(w.Served)
	}
	w.nodeNotes()
	w.done()
}

// nodeNotes notes the problems of the node, unless they are the stop.
func (w *walk) nodeNotes() {
	object, node := "Node "+w.NodeName, w.Node.Value()
	switch {
	case w.Node.Missing() && !w.stopsAt(diagnosis.NodeMissing):
		w.note(found(diagnosis.NodeMissing, object, "does not exist", "Delete the Pods that are bound to the node if it is gone: kube-controller-manager then detaches their volumes."))
	case node != nil:
		if c := ready(node); c != nil && c.Status != corev1.ConditionTrue {
			w.note(w.lasting(diagnosis.NodeNotReady, object, "not ready", c.LastTransitionTime.Time, cmp.Or(c.Message, c.Reason), "Look at its kubelet. If the node is dead, taint it node.kubernetes.io/out-of-service, so that its volumes are detached."))
		}
	}
}

// singleNode reports whether the volume may be attached to one node only, as its specification says.
func (w *walk) singleNode() bool {
	spec := w.spec()
	return spec != nil && !slices.ContainsFunc(spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return m == corev1.ReadOnlyMany || m == corev1.ReadWriteMany
	})
}
