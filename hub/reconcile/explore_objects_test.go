package reconcile

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// exploredDriver is the driver of the explored worlds.
const exploredDriver = "explored.example.com"

var exploredFinalizer = attach.Finalizer(exploredDriver)

// exploredKey makes keys. What it appends is text, except for resourceVersions, of which only the order counts: text has a
// place for each, and versions their values, one list for each resource.
type exploredKey struct {
	text     []byte
	versions [resources][]int32
}

// resource is a resource of the explored API server. Each has resourceVersions of its own, but Leases have those of
// VolumeAttachments.
type resource int8

const (
	attachments resource = iota
	volumes
	nodes
	drivers
	resources
)

func (r resource) String() string { return [...]string{"va", "pv", "csinode", "csidriver"}[r] }

func (k *exploredKey) add(parts ...string) {
	for _, p := range parts {
		k.text = append(append(k.text, p...), 0)
	}
}

func (k *exploredKey) version(r resource, v string) {
	n, _ := strconv.Atoi(v)
	k.text = append(k.text, 1)
	k.versions[r] = append(k.versions[r], int32(n))
}

func (k *exploredKey) join(other *exploredKey) {
	k.text = append(k.text, other.text...)
	for r := range k.versions {
		k.versions[r] = append(k.versions[r], other.versions[r]...)
	}
}

func (k *exploredKey) meta(r resource, o metav1.Object) {
	k.add(o.GetName(), string(o.GetUID()))
	k.add(o.GetFinalizers()...)
	if o.GetDeletionTimestamp() != nil {
		k.add("deleting")
	}
	k.version(r, o.GetResourceVersion())
}

// object appends an object of one of the resources, or nil.
func (k *exploredKey) object(o any) {
	switch o := o.(type) {
	case *storagev1.VolumeAttachment:
		if o == nil {
			break
		}
		k.meta(attachments, o)
		noted := attach.NotedTarget(o)
		k.add(noted.VolumeHandle, noted.NodeID, strconv.FormatBool(o.Status.Attached), strconv.FormatBool(o.Status.AttachError != nil), strconv.FormatBool(o.Status.DetachError != nil))
	case *corev1.PersistentVolume:
		if o == nil {
			break
		}
		k.meta(volumes, o)
	case *attach.Volume: // as the caches keep it
		if o == nil {
			break
		}
		k.meta(volumes, o.GetObjectMeta())
	case *storagev1.CSINode:
		if o == nil {
			break
		}
		k.meta(nodes, o)
		for _, d := range o.Spec.Drivers {
			k.add(d.NodeID)
		}
	case *storagev1.CSIDriver:
		if o == nil {
			break
		}
		k.meta(drivers, o)
		k.add(strconv.FormatBool(*o.Spec.AttachRequired))
	case nil:
	default:
		panic(fmt.Sprintf("no key for %T", o))
	}
	k.add(";")
}

// describe returns the object in one line, for traces.
func describe(o any) string {
	switch o := o.(type) {
	case *storagev1.VolumeAttachment:
		text := fmt.Sprintf("va %s (%s, rv %s)", o.Name, o.UID, o.ResourceVersion)
		if attach.HasFinalizer(o.Finalizers, exploredFinalizer) {
			text += " guarded"
		}
		if noted := attach.NotedTarget(o); noted != (attach.Target{}) {
			text += fmt.Sprintf(" noted %s@%s", noted.VolumeHandle, noted.NodeID)
		}
		if o.Status.Attached {
			text += " attached"
		}
		if o.DeletionTimestamp != nil {
			text += " deleting"
		}
		return text
	case *corev1.PersistentVolume:
		return fmt.Sprintf("pv %s (rv %s) finalizers %v deleting %t", o.Name, o.ResourceVersion, o.Finalizers, o.DeletionTimestamp != nil)
	case *storagev1.CSINode:
		return fmt.Sprintf("csinode %s %v", o.Name, o.Spec.Drivers)
	case *storagev1.CSIDriver:
		return fmt.Sprintf("csidriver %s attachRequired %v", o.Name, *o.Spec.AttachRequired)
	}
	return fmt.Sprint(o)
}

func newVolume(name string, shared bool) *corev1.PersistentVolume {
	mode := corev1.ReadWriteOnce
	if shared {
		mode = corev1.ReadWriteMany
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{mode},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: exploredDriver, VolumeHandle: "handle-" + name}}},
	}
}

func newNode(name, id string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: exploredDriver, NodeID: id}}}}
}

func newDriver(attachRequired bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: exploredDriver, UID: "uid-driver"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attachRequired}}
}

func newAttachment(name, pv, node string, uid int8) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("uid-%s-%d", name, uid)),
		CreationTimestamp: metav1.NewTime(time.Date(1999, 1, 1, 0, 0, int(uid), 0, time.UTC))}, // the clock of a bubble begins later
		Spec: storagev1.VolumeAttachmentSpec{Attacher: exploredDriver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
}
