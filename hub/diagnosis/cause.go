package diagnosis

import (
	"regexp"
	"strings"
)

// Cause is what an error of an attach or a detach means, for programs. The zero value is an
// error of which nothing but the text is known.
type Cause struct {
	// Verdict is BackendError for an answer of the driver, CannotConnect if the driver could
	// not be asked, SecretMissing, SecretForbidden, NodeWithoutCSI, NodeWithoutDriver,
	// VolumeMissing, VolumeNotCSI, VolumeBeingDeleted, VolumeRecreated, ObjectChanged or
	// WriteForbidden.
	Verdict Verdict `json:"verdict,omitempty"`
	Code    string  `json:"code,omitempty"` // of BackendError: the name of the gRPC code
}

// StuckPrefix begins the error in the status of a VolumeAttachment that is stuck. LastErrorPrefix comes before the
// error that keeps it stuck, if an error does.
const (
	StuckPrefix     = "stuck: "
	LastErrorPrefix = "last error: "
)

// callError is the text of the error of a gRPC call.
var callError = regexp.MustCompile(`(?s)^rpc error: code = ([A-Za-z]+) desc = (.*)$`)

// texts are how errors of the hub begin, and what they mean. What a driver says is behind
// "rpc error", so that it can look like none of them.
var texts = []struct {
	begins, contains string
	verdict          Verdict
}{
	{"read secret ", "forbidden", SecretForbidden},
	{"read secret ", "", SecretMissing},
	{"the driver is not connected", "", CannotConnect},
	{"", "was recreated with another", VolumeRecreated},
	{"csinode ", "does not contain driver", NodeWithoutDriver},
	{"csinode ", "not found", NodeWithoutCSI},
	{"persistentvolume ", "is being deleted", VolumeBeingDeleted},
	{"persistentvolume ", "not found", VolumeMissing},
	{"persistentvolume ", "neither a CSI volume", VolumeNotCSI},
	{"", "the object has changed", ObjectChanged},
	{"", "forbidden", WriteForbidden},
	{"", "not allowed", WriteForbidden},
}

// IsError reports whether the error in a VolumeAttachment's status is one: that of a stuck VolumeAttachment may only say
// what it waits for.
func IsError(text string) bool {
	return !strings.HasPrefix(text, StuckPrefix) || strings.Contains(text, LastErrorPrefix)
}

// Parse returns the cause of an error of which only the text is left, and that text without
// the words that its cause repeats: in a VolumeAttachment's status, or from an earlier hub.
// Where the hub has the error itself, it sends the Cause. code is that of the status, "" for
// none.
func Parse(text, code string) (Cause, string) {
	// What keeps a volume stuck is the error behind these words. An earlier hub wrote "the last error: ".
	if _, last, found := strings.Cut(text, LastErrorPrefix); found && strings.HasPrefix(text, StuckPrefix) {
		text = last
	}
	if m := callError.FindStringSubmatch(text); m != nil {
		if code == "" {
			code = m[1]
		}
		return Cause{BackendError, code}, m[2]
	}
	if code != "" {
		return Cause{BackendError, code}, text
	}
	for _, t := range texts {
		if strings.HasPrefix(text, t.begins) && strings.Contains(text, t.contains) {
			return Cause{Verdict: t.verdict}, text
		}
	}
	return Cause{}, text
}

// ofCode says what to do about an answer of a driver, by the name of its gRPC code.
var ofCode = map[string]string{
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

// ofVerdict says what to do about the other causes. {node} and {volume} stand for names.
var ofVerdict = map[Verdict]string{
	CannotConnect:      "Check the driver's controller and where the hub looks for it.",
	SecretMissing:      "Create the secret that the PersistentVolume names in controllerPublishSecretRef. The hub tries again within the driver's retry.max.",
	SecretForbidden:    "Give the hub's ServiceAccount a Role with get on secrets in the namespace of the secret.",
	NodeWithoutDriver:  "Node {node} has no such driver: check that the driver's node plugin (a DaemonSet) runs there, its node-driver-registrar, and the taints of the node.",
	NodeWithoutCSI:     "Node {node} is gone, or its kubelet has registered no CSI driver yet: check the node and its kubelet, then that the driver's node plugin (a DaemonSet) runs there.",
	VolumeRecreated:    "PersistentVolume {volume} is not the one that the volume was attached by: find the handle of the attached volume at the storage system, and do what the error says.",
	VolumeMissing:      "PersistentVolume {volume} is gone: delete the VolumeAttachment, or restore the PersistentVolume.",
	VolumeBeingDeleted: "A PersistentVolume that is being deleted is not attached any more: take the volume out of the Pod, and delete the VolumeAttachment if nobody does.",
	ObjectChanged:      "The object changed in the meantime: this passes by itself.",
	WriteForbidden:     "The API server did not allow a write or a read: check the hub's ClusterRole and its bindings.",
}

// Action returns what to do about an error, of a volume for a node.
func (c Cause) Action(node, volume string) string {
	action := ofVerdict[c.Verdict]
	if c.Verdict == BackendError {
		action = ofCode[c.Code]
	}
	if action == "" {
		return "The last error is what is known; the log of the driver's controller may say more."
	}
	return strings.NewReplacer("{node}", node, "{volume}", volume).Replace(action)
}
