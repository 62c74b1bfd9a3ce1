package safety

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Rule is the name of a promise.
type Rule string

// The rules.
const (
	OneCall         Rule = "OneCall"
	OneNode         Rule = "OneNode"
	DetachFirst     Rule = "DetachFirst"
	Announced       Rule = "Announced"
	Wanted          Rule = "Wanted"
	InUse           Rule = "InUse"
	Needless        Rule = "Needless"
	Holder          Rule = "Holder"
	AttachedTrue    Rule = "AttachedTrue"
	DetachedTrue    Rule = "DetachedTrue"
	Finalizer       Rule = "Finalizer"
	VolumeFinalizer Rule = "VolumeFinalizer"
	SameObject      Rule = "SameObject"
	Fulfilled       Rule = "Fulfilled"
	NothingLeft     Rule = "NothingLeft"
)

// Promise is what a rule says, and who asks for it.
type Promise struct{ Text, Source string }

// Promises has all rules.
var Promises = map[Rule]Promise{
	OneCall:         {"there is one call for a volume at a time; for a volume of many nodes, one at each node", "CSI spec, ControllerPublishVolume: at most one call in flight per volume"},
	OneNode:         {"a volume of one node is asked for at a node only while it is attached nowhere else, or its driver has refused to detach it there: the driver decides then", "CSI spec, FAILED_PRECONDITION; csi-attacher asks the driver too"},
	DetachFirst:     {"a volume of one node is not asked for elsewhere while a detach of it is due that has not been tried", "our promise: a move is one detach and one attach, without a refused call"},
	Announced:       {"no call uses a capability that the driver does not announce", "CSI spec, ControllerGetCapabilities"},
	Wanted:          {"nothing is detached where a VolumeAttachment reports it as attached and nobody deletes that", "Kubernetes API, VolumeAttachment"},
	InUse:           {"nothing is detached from a node that uses it, unless its VolumeAttachment was deleted", "Kubernetes API, Node.status.volumesInUse"},
	Needless:        {"no call repeats what is recorded as done; at rest nothing is called or written", "our promise: a restart or a takeover reads"},
	Holder:          {"only who holds the lease of a driver calls and writes for it", "csi-attacher: one leader"},
	AttachedTrue:    {"what is reported as attached is attached, until it is being deleted", "Kubernetes API, VolumeAttachment.status.attached; kubelet mounts then"},
	DetachedTrue:    {"what is attached is not reported as detached", "Kubernetes API; the volume may be attached elsewhere then"},
	Finalizer:       {"where a volume is attached, a VolumeAttachment with the finalizer has that noted", "csi-attacher: the finalizer goes after the detach"},
	VolumeFinalizer: {"a PersistentVolume keeps the finalizer while its volume is attached or a VolumeAttachment has it", "csi-attacher; the volume is deleted then"},
	SameObject:      {"a write is for the object that its sender has seen, not for a later one of that name", "Kubernetes API, metadata.uid"},
	Fulfilled:       {"what users ask for is attached and reported in the end, without an error", "Kubernetes API"},
	NothingLeft:     {"what nobody asks for is detached and gone in the end", "Kubernetes API; csi-attacher"},
}

// Broken says that a rule does not hold.
type Broken struct {
	Rule  Rule
	About string // the volume, by its handle or by the name of its PersistentVolume
	Text  string
}

func (b *Broken) Error() string { return string(b.Rule) + ": " + b.Text }

func (r Rule) broken(about, format string, args ...any) error {
	return &Broken{r, about, fmt.Sprintf(format, args...)}
}

// Known is how sure somebody is of something.
type Known int8

const (
	No Known = iota
	Perhaps
	Yes
)

// Surely is for who sees exactly.
func Surely(is bool) Known {
	if is {
		return Yes
	}
	return No
}

// Place is a volume at a node ID, or with an empty one the volume.
type Place struct {
	Driver string `json:"driver"`
	Volume string `json:"volume"`
	Node   string `json:"node,omitempty"`
}

func (p Place) String() string { return p.Volume + " at " + p.Node }

// Attachment is a VolumeAttachment.
type Attachment struct {
	Name, UID string
	Volume    string // name of the PersistentVolume
	Noted     Place
	Attached  bool
	Deleting  bool
	Guarded   bool // it has the finalizer of its driver
	Error     string
}

// AttachmentOf returns what a VolumeAttachment says.
func AttachmentOf(va *storagev1.VolumeAttachment, finalizer string) Attachment {
	c := Attachment{Name: va.Name, UID: string(va.UID), Attached: va.Status.Attached, Deleting: va.DeletionTimestamp != nil,
		Guarded: slices.Contains(va.Finalizers, finalizer),
		Noted:   Place{va.Spec.Attacher, va.Annotations["attach-hub/volume-handle"], va.Annotations["csi.alpha.kubernetes.io/node-id"]}}
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		c.Volume = *name
	}
	for _, e := range []*storagev1.VolumeError{va.Status.AttachError, va.Status.DetachError} {
		if e != nil {
			c.Error = strings.TrimSpace(c.Error + " " + e.Message + " ")
		}
	}
	return c
}

// Volume is a PersistentVolume.
type Volume struct {
	Name, UID string
	Place     Place // without a node
	Deleting  bool
	Guarded   bool
}

// VolumeOf returns what a PersistentVolume of a CSI driver says.
func VolumeOf(pv *corev1.PersistentVolume, finalizer string) Volume {
	v := Volume{Name: pv.Name, UID: string(pv.UID), Deleting: pv.DeletionTimestamp != nil, Guarded: slices.Contains(pv.Finalizers, finalizer)}
	if pv.Spec.CSI != nil {
		v.Place = Place{Driver: pv.Spec.CSI.Driver, Volume: pv.Spec.CSI.VolumeHandle}
	}
	return v
}
