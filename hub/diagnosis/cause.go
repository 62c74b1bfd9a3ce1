package diagnosis

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Cause is what an error of an attach or a detach means, for programs. The zero value is an
// error of which nothing but the text is known.
type Cause struct {
	// Verdict is BackendError for an answer of the driver, else one of texts.
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
	{"read secret ", "may not name it", SecretNotAllowed},
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
	{"", `admission webhook "`, AdmissionDenied},
	{"", "ValidatingAdmissionPolicy '", AdmissionDenied},
	{"", `failed calling webhook "`, WebhookFailed}, // after those, which repeat the words of others
	{"", "too many requests", TooManyRequests},
	{"", "forbidden", WriteForbidden},
	{"", "not allowed", WriteForbidden},
}

// IsError reports whether the error in a VolumeAttachment's status is one: that of a stuck VolumeAttachment may only say
// what it waits for.
func IsError(text string) bool {
	return !strings.HasPrefix(text, StuckPrefix) || strings.Contains(text, LastErrorPrefix)
}

// Parse returns the cause of an error by its text, as the hub has it or as a VolumeAttachment's status keeps it, and that
// text without the words that its cause repeats. code is that of the status, "" for none.
func Parse(text, code string) (Cause, string) {
	// What keeps a volume stuck is the error behind these words.
	if _, last, found := strings.Cut(text, LastErrorPrefix); found && strings.HasPrefix(text, StuckPrefix) {
		text = last
	}
	if m := callError.FindStringSubmatch(text); m != nil {
		return Cause{BackendError, cmp.Or(code, m[1])}, m[2]
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

// advice says what to do: about an answer of the driver, by the name of its gRPC code, and about the other causes.
// {node}, {volume} and {secret} stand for names.
var advice = map[Verdict]string{
	"InvalidArgument":    "Compare the volume's attributes and access modes with the driver's documentation: the driver rejects the call as invalid.",
	"NotFound":           "Check that the volume handle exists in the storage system, and that the node ID in the node's CSINode is the one of the machine.",
	"AlreadyExists":      "Detach the volume from the node first: it is published there read-only or with another access mode.",
	"FailedPrecondition": "Look for other VolumeAttachments of the volume, and look in the storage system: there it is usually still attached to another node.",
	"ResourceExhausted":  "Check the limit in the node's CSINode (allocatable.count) and the storage system's quotas: usually the node has as many volumes as it can have.",
	"PermissionDenied":   "Check the rights of the driver's credentials in the storage system.",
	"Unauthenticated":    "Check the driver's credentials, and the secret that the PersistentVolume names.",
	"DeadlineExceeded":   "Look at the log of the driver's controller and at the storage system. Raise timeout if the calls need longer.",
	"Unavailable":        "Look at the log of the driver's controller: the driver or its storage system is unavailable or busy.",
	"Aborted":            "Wait: another operation on the volume is in progress in the storage system. If this lasts, look at the log of the driver's controller.",
	"Unimplemented":      "Set attachRequired: false in the driver's CSIDriver object: the driver cannot attach and detach.",
	"Canceled":           "Wait for the next try: the call was canceled, usually by a restart or by the loss of the lease.",
	"Internal":           "Look at the log of the driver's controller: the driver reports an internal error.",
	"Unknown":            "Look at the log of the driver's controller: the driver does not say what kind of error it is.",

	CannotConnect:      "Check that the driver's controller runs, and that the hub's configuration has its endpoint.",
	SecretMissing:      "Create the secret that the PersistentVolume names in controllerPublishSecretRef. The hub tries again within the driver's retry.max.",
	SecretForbidden:    "Grant the hub get on {secret}, and on no other, by name: secrets of the driver in the values of deploy/chart.",
	SecretNotAllowed:   "If the driver's volumes should use {secret}, add it to secrets of the driver in drivers.yaml: the hub tries again at once. If not, somebody made a PersistentVolume that names a Secret of others.",
	NodeWithoutDriver:  "Check that the driver's node plugin (a DaemonSet) and its node-driver-registrar run on node {node}, and the taints of the node.",
	NodeWithoutCSI:     "Check that node {node} exists and that its kubelet runs, then that the driver's node plugin (a DaemonSet) runs there.",
	VolumeRecreated:    "Find the handle of the attached volume in the storage system, and do what the error says: PersistentVolume {volume} is not the one that was attached.",
	VolumeMissing:      "Restore PersistentVolume {volume} with the same handle. If no Pod needs it, delete the VolumeAttachment.",
	VolumeNotCSI:       "Look at kube-controller-manager and at the kubelet: CSI does not attach this volume.",
	VolumeBeingDeleted: "Remove the volume from the Pod: a PersistentVolume that is being deleted cannot be attached. Its persistentVolumeReclaimPolicy decides whether the storage is deleted too: Retain keeps it. Delete the VolumeAttachment if it stays.",
	ObjectChanged:      "Wait for the next try: the object changed in the meantime.",
	WebhookFailed:      "Repair the admission webhook that the error names: it is its own Deployment and Service. The API server refuses the hub's writes until the webhook answers.",
	AdmissionDenied:    "Change the policy behind the admission webhook or the ValidatingAdmissionPolicy that the error names, so that it admits the hub's writes.",
	TooManyRequests:    "Wait. If this lasts, check API Priority and Fairness: apiserver_flowcontrol_rejected_requests_total names the FlowSchema and the priority level. flowSchemas in the values of deploy/chart gives the hub's requests a level that other workloads cannot fill.",
	WriteForbidden:     "Check the hub's ClusterRole and its bindings: the API server denied a read or a write. csi-attach-hub explain driver/NAME names a right that is missing.",
}

// detachAdvice has what is not as in advice where a detach fails.
var detachAdvice = map[Verdict]string{
	"NotFound":           "Look in the storage system. Only if the volume does not exist there, or is attached to no machine, remove the finalizer of the attacher from the VolumeAttachment. The driver should answer OK then (CSI specification).",
	"FailedPrecondition": "Look in the storage system for what keeps the volume attached to node {node}, and at the log of the driver's controller.",
}

// secretError is how the error of a secret begins.
var secretError = regexp.MustCompile(`^read (secret \S+) for the call: `)

// DetachAction is Action for the error of a detach.
func (c Cause) DetachAction(node, volume, text string) string {
	if action, ok := detachAdvice[Verdict(c.Code)]; ok {
		return strings.ReplaceAll(action, "{node}", node)
	}
	return c.Action(node, volume, text)
}

// Action returns what to do about an error, of a volume for a node. text is that of the error, "" if it is not known.
func (c Cause) Action(node, volume, text string) string {
	action := cmp.Or(advice[cmp.Or(Verdict(c.Code), c.Verdict)], "Look at the log of the driver's controller: only the text of the error is known.")
	secret := "the secret"
	if m := secretError.FindStringSubmatch(text); m != nil {
		secret = m[1]
	}
	return strings.NewReplacer("{node}", node, "{volume}", volume, "{secret}", secret).Replace(action)
}

// refusals are known errors of connecting to a driver, by words in their text: they come from
// the operating system, from TLS and from gRPC, which have no common type.
var refusals = []struct {
	words   []string // in small letters; one of them is enough
	verdict Verdict
	action  string // {endpoint} stands for where the driver should answer, {source} for what says so
}{
	{[]string{"proxy cannot open", "and hung up then"}, CannotConnect, "Look at the log of the proxy beside the driver at {endpoint}: it says why the proxy does not reach the driver, and what to do."},
	{[]string{"certificate of the server has expired"}, CertificateExpired, "Renew the certificate with which the driver's side answers at {endpoint}."},
	{[]string{" expired at ", "it has expired: renew it"}, CertificateExpired, "Renew the client certificate of the hub, which tls.certFile of the driver names."},
	{[]string{"and not for servername"}, CertificateName, "Set tls.serverName of the driver in drivers.yaml to a name of that certificate if it is the driver's, or issue the certificate for the name."},
	{[]string{"no such file"}, SocketMissing, "Check that the driver's controller runs, that it creates the socket {endpoint}, and that the directory of the socket is mounted into the hub's Pod, or correct the endpoint ({source})."},
	{[]string{"permission denied"}, CannotConnect, "Check the owner and the mode of {endpoint}, and the user that the hub runs as: the hub may not open it."},
	{[]string{"connection refused"}, CannotConnect, "Check that the driver's controller runs and does not crash, or correct the endpoint ({source}): nothing listens at {endpoint}."},
	{[]string{"no such host"}, CannotConnect, "Check the Service and its namespace, or correct the endpoint ({source}): the host name in {endpoint} cannot be resolved."},
	{[]string{"tls", "x509", "certificate"}, CannotConnect, "Check the TLS files of both sides: the message says which side does not trust the other one."},
	{[]string{"timeout", "deadline", "i/o"}, CannotConnect, "Check the driver's controller, its load, and the NetworkPolicies on the way, or correct the endpoint ({source}): nothing answers at {endpoint} in time."},
	{[]string{"not ready", "code = failedprecondition"}, DriverNotReady, "Look at the log of the driver's controller: the driver reports that it is not ready."},
}

// ParseRefusal returns what the error of connecting to a driver at an endpoint means, and what to do. source is
// where the endpoint was learned, "drivers.yaml:3".
func ParseRefusal(text, endpoint, source string) (Verdict, string) {
	verdict, action := CannotConnect, "Look at the log of the driver's controller, which should answer at {endpoint}."
	text = strings.ToLower(text)
	for _, r := range refusals {
		if slices.ContainsFunc(r.words, func(word string) bool { return strings.Contains(text, word) }) {
			verdict, action = r.verdict, r.action
			break
		}
	}
	if strings.Contains(text, "connection refused") && strings.HasPrefix(endpoint, "unix:") {
		action += " The socket may be left over from an earlier run."
	}
	return verdict, strings.NewReplacer("{endpoint}", endpoint, "{source}", cmp.Or(source, "the configuration")).Replace(action)
}
