package explain

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// claimStage checks that the claim exists and is bound to the volume.
func (w *walk) claimStage() bool {
	if w.ClaimName == "" {
		return true
	}
	object, claim := ref(PersistentVolumeClaim, w.Namespace, w.ClaimName), w.Claim.Value()
	switch {
	case w.Claim.Missing() && w.askedByClaim():
		return w.claimStop(diagnosis.ClaimMissing, object, "does not exist", "Create the claim: the Pod waits for it.")
	case w.Claim.Missing():
		return w.claimStop(diagnosis.ClaimMissing, object, "does not exist, and the PersistentVolume names it in its claimRef", w.releasedNext())
	case claim == nil:
		return w.VolumeName != "" // unknown says why it was not read
	case !w.ofThisClaim() && !w.askedByClaim():
		return w.claimStop(diagnosis.VolumeOfAnother, ref(PersistentVolume, "", w.VolumeName), fmt.Sprintf("its claimRef names %s with UID %s; the claim of that name has UID %s and names PersistentVolume %s",
			object, cmp.Or(string(w.claimUID()), "unknown"), claim.UID, cmp.Or(claim.Spec.VolumeName, "none")), w.releasedNext())
	case claim.Status.Phase != corev1.ClaimBound:
		return w.claimStop(diagnosis.ClaimNotBound, object, unboundFact(claim), "Look at the claim's Events, its StorageClass and the driver's provisioner: a volume is attached only after its claim is bound. With WaitForFirstConsumer it is bound when a Pod has a node.")
	case claim.DeletionTimestamp != nil:
		w.note(w.lasting(diagnosis.ClaimNotBound, object, "being deleted", claim.DeletionTimestamp.Time, "", "Wait: the claim is removed when no Pod uses it."))
	}
	w.ok("%s is bound to %s", object, ref(PersistentVolume, "", w.VolumeName))
	return true
}

// askedByClaim reports whether the volume was found by its claim: the question is about a Pod or the
// claim. Without the claim the walk then ends.
func (w *walk) askedByClaim() bool {
	return w.Question.Kind == Pod || w.Question.Kind == PersistentVolumeClaim
}

// claimStop stops at the claim if it led to the volume. Otherwise it keeps the finding in claimFault.
func (w *walk) claimStop(verdict diagnosis.Verdict, object, fact, next string) (goOn bool) {
	if w.askedByClaim() {
		w.stop(found(verdict, object, fact, next))
		return false
	}
	w.claimFault = new(found(verdict, object, fact, next))
	return true
}

// claimUID returns the UID of the claim that the PersistentVolume is bound to, "" if it has no
// claimRef or one without UID.
func (w *walk) claimUID() types.UID {
	if pv := w.PersistentVolume.Value(); pv != nil && pv.Spec.ClaimRef != nil {
		return pv.Spec.ClaimRef.UID
	}
	return ""
}

// releasedNext says what to do about a PersistentVolume whose claim is gone.
func (w *walk) releasedNext() string {
	switch {
	case w.Users.Value() != nil && len(items(w.Users)) == 0:
		return "Do nothing if the volume is not needed any more: its persistentVolumeReclaimPolicy says what happens to it. To give it to another claim, remove its claimRef."
	case w.claimUID() != "":
		return "If Pods wait for the claim, create it and remove the uid from the claimRef: the new claim then gets this volume."
	}
	return "If Pods wait for the claim, create it: it gets this volume."
}

func unboundFact(claim *corev1.PersistentVolumeClaim) string {
	fact := fmt.Sprintf("%s, not bound to a PersistentVolume", cmp.Or(string(claim.Status.Phase), "new"))
	if class := claim.Spec.StorageClassName; class != nil && *class != "" {
		fact += ", StorageClass " + *class
	}
	if claim.Status.Phase == corev1.ClaimLost {
		fact += ": its PersistentVolume is gone"
	}
	return fact
}
