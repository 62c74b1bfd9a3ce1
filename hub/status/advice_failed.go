package status

import (
	"fmt"
	"regexp"
)

// grpcCode finds the code in the text of an error of a call.
var grpcCode = regexp.MustCompile(`\bcode = ([A-Za-z]+)`)

// codeAdvice says what to do about an answer of a driver, by its gRPC code.
var codeAdvice = map[string]string{
	"InvalidArgument":    "The driver does not take the call as it is: compare the volume's attributes and access modes with the driver's documentation.",
	"NotFound":           "The storage system does not know the volume or the node: check that the volume handle exists there, and that the node's ID in its CSINode is that of the machine.",
	"AlreadyExists":      "The volume is published there in another way, read-only or with another access mode: detach it first.",
	"FailedPrecondition": "Mostly the volume is attached elsewhere, as far as the storage system knows: look for other VolumeAttachments of the volume, and in the storage system.",
	"ResourceExhausted":  "Mostly the node has as many volumes as it can have, or a quota is used up: look at the limit in its CSINode (allocatable.count) and at the storage system's quotas.",
	"PermissionDenied":   "The storage system does not allow it: check the rights of the driver's credentials.",
	"Unauthenticated":    "The storage system does not take the credentials: check the driver's, and the secret that the PersistentVolume names.",
	"DeadlineExceeded":   "The call took longer than the driver's timeout: look at the log of the driver's controller and at the storage system; raise timeout if it needs that long.",
	"Unavailable":        "The driver or its storage system is away or busy: look at the log of the driver's controller.",
	"Aborted":            "Something else is being done to the volume in the storage system: this passes mostly.",
	"Unimplemented":      "The driver cannot attach and detach: its CSIDriver object should say attachRequired: false.",
	"Canceled":           "The call was cut off, mostly by a restart or by the loss of the lease.",
	"Internal":           "The driver failed inside: its log says more.",
	"Unknown":            "The driver does not say what kind of error it is: its log says more.",
}

// adviseFailed: it was tried and did not succeed.
func adviseFailed(c Case) Advice {
	a := c.Attachment
	stands := fmt.Sprintf("To %s failed", wanted(a))
	switch {
	case a.Tries == 1:
		stands += " once"
	case a.Tries > 1:
		stands += fmt.Sprintf(" %s times in a row", count(a.Tries))
	}
	if a.State == Stuck && !a.Since.IsZero() {
		stands += fmt.Sprintf(", for %s now", age(c.Now, a.Since))
	}
	switch wait := a.NextTry.Sub(c.Now); {
	case a.NextTry.IsZero():
	case wait > 0:
		stands += fmt.Sprintf("; %s retry in %s", ordinal(max(1, a.Tries)), duration(wait))
	default:
		stands += fmt.Sprintf("; %s retry now", ordinal(max(1, a.Tries)))
	}
	return Advice{
		Stands: stands + ".",
		Do:     append(adviseError(a), "The hub goes on trying. A change of the node's CSINode, of the PersistentVolume or its secret, or of the driver's connection makes it try at once."),
	}
}

// adviseError says what to do about the last error.
func adviseError(a Attachment) []string {
	text := a.LastError
	has := func(words ...string) bool { return containsAny(text, words) }
	switch {
	case has("csinode") && has("does not contain driver"):
		return []string{fmt.Sprintf("Node %s has no such driver: check that the driver's node plugin (DaemonSet) runs there and has registered with the kubelet.", a.Node)}
	case has("csinode") && has("not found"):
		return []string{fmt.Sprintf("Node %s is gone, or its kubelet has registered no CSI driver yet: check the node.", a.Node)}
	case has("read secret"):
		return []string{"The secret that the PersistentVolume names in controllerPublishSecretRef cannot be read: create it, or let the hub get secrets in its namespace."}
	case has("persistentvolume") && has("was recreated with another"):
		return []string{fmt.Sprintf("PersistentVolume %s is not the one that the volume was attached by: find the handle of the attached volume at the storage system, and do what the error says.", a.PersistentVolume)}
	case has("persistentvolume") && has("not found"):
		return []string{fmt.Sprintf("PersistentVolume %s is gone: what made the VolumeAttachment has to delete it.", a.PersistentVolume)}
	case has("is being deleted"):
		return []string{"The PersistentVolume is being deleted: it is attached nowhere any more."}
	}
	if m := grpcCode.FindStringSubmatch(text); m != nil && codeAdvice[m[1]] != "" {
		return []string{codeAdvice[m[1]]}
	}
	switch {
	case has("forbidden", "not allowed"):
		return []string{"The API server did not allow a write or a read: check the hub's ClusterRole and its bindings."}
	case has("the object has changed"):
		return []string{"The object changed in the meantime: this passes by itself."}
	}
	return []string{"The last error is what is known; the log of the driver's controller may say more."}
}
