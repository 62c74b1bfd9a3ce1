package attach

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
)

// Volume is what the hub needs of a PersistentVolume: caches keep it, and decisions read it. It is shared and must not be changed.
type Volume struct {
	Name, ResourceVersion string
	UID                   types.UID
	Created               metav1.Time
	Deleted               *metav1.Time // when its deletion was requested; nil: it was not
	Finalizers            []string
	Claim                 string  // namespace and name of the PersistentVolumeClaim, "" for none
	MigratedTo            *string // of an in-tree volume that can be migrated: see AnnotationMigratedTo; nil of others
	Source                        // empty: no CSI driver can attach it
	noSource              error   // why not
}

// Source is what a call needs of a volume with a CSI source, or of an in-tree volume as it is translated to CSI.
type Source struct {
	Driver, Handle string
	FSType         string
	MountOptions   []string
	Attributes     []Attribute             // a map would take several times the memory
	SecretRef      *corev1.SecretReference // of the Secret for publish and unpublish, nil for none
	AccessModes    []corev1.PersistentVolumeAccessMode
	Nodes          NodeMode // of the AccessModes
	Block          bool
	ReadOnly       bool
}

// Attribute is an entry of the volume context.
type Attribute struct{ Key, Value string }

// NodeMode is the number of nodes that a volume may be attached to at once.
type NodeMode int8

const (
	UnknownNodes NodeMode = iota // also if the access modes contradict each other
	SingleNode
	MultiNode
)

// translator translates in-tree volumes into CSI volumes. It has no state.
var translator = csitranslation.New()

// VolumeOf returns what the hub needs of a PersistentVolume, nil for nil. It shares memory with pv.
func VolumeOf(pv *corev1.PersistentVolume) *Volume {
	if pv == nil {
		return nil
	}
	v := &Volume{Name: pv.Name, ResourceVersion: pv.ResourceVersion, UID: pv.UID, Created: pv.CreationTimestamp,
		Deleted: pv.DeletionTimestamp, Finalizers: pv.Finalizers}
	if claim := pv.Spec.ClaimRef; claim != nil && claim.Name != "" {
		v.Claim = claim.Namespace + "/" + claim.Name
	}
	switch {
	case pv.Spec.CSI != nil:
		v.Source = sourceOf(&pv.Spec)
		return v
	case !translator.IsPVMigratable(pv):
		v.noSource = fmt.Errorf("persistentvolume %q is neither a CSI volume nor one that is migrated to CSI", pv.Name)
		return v
	}
	v.MigratedTo = new(pv.Annotations[AnnotationMigratedTo])
	translated, err := translator.TranslateInTreePVToCSI(klog.Background(), pv)
	if err != nil {
		v.noSource = fmt.Errorf("translate persistentvolume %q to CSI: %w", pv.Name, err)
		return v
	}
	v.Source = sourceOf(&translated.Spec)
	return v
}

// sourceOf returns the source of a specification that has a CSI source.
func sourceOf(spec *corev1.PersistentVolumeSpec) Source {
	s := Source{Driver: spec.CSI.Driver, Handle: spec.CSI.VolumeHandle, FSType: spec.CSI.FSType, ReadOnly: spec.CSI.ReadOnly,
		SecretRef:    spec.CSI.ControllerPublishSecretRef,
		MountOptions: spec.MountOptions, AccessModes: spec.AccessModes,
		Block: spec.VolumeMode != nil && *spec.VolumeMode == corev1.PersistentVolumeBlock}
	if n := len(spec.CSI.VolumeAttributes); n > 0 {
		s.Attributes = make([]Attribute, 0, n)
		for key, value := range spec.CSI.VolumeAttributes {
			s.Attributes = append(s.Attributes, Attribute{key, value})
		}
		slices.SortFunc(s.Attributes, func(a, b Attribute) int { return cmp.Compare(a.Key, b.Key) })
	}
	// The capability SINGLE_NODE_MULTI_WRITER only chooses among single-node modes.
	switch mode, err := accessmodes.ToCSIAccessMode(spec.AccessModes, false); {
	case err != nil:
	case strings.HasPrefix(mode.String(), "MULTI_NODE_"):
		s.Nodes = MultiNode
	default:
		s.Nodes = SingleNode
	}
	return s
}

// Record returns the record of the volume at a node ID.
func (s *Source) Record(nodeID string) Record {
	return Record{Target: Target{VolumeHandle: s.Handle, NodeID: nodeID}, SecretRef: s.SecretRef, SecretKnown: true, Nodes: s.Nodes}
}

// context returns the volume context, nil for none.
func (s *Source) context() map[string]string {
	if s.Attributes == nil {
		return nil
	}
	context := make(map[string]string, len(s.Attributes))
	for _, a := range s.Attributes {
		context[a.Key] = a.Value
	}
	return context
}

// capability returns the capability with which a driver publishes the volume.
func (d Driver) capability(s *Source) (*csi.VolumeCapability, error) {
	mode, err := accessmodes.ToCSIAccessMode(s.AccessModes, d.Capabilities.SingleNodeMultiWriter)
	if err != nil {
		return nil, err
	}
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if s.Block {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return capability, nil
	}
	capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
		FsType: cmp.Or(s.FSType, d.DefaultFSType), MountFlags: s.MountOptions}}
	return capability, nil
}

// LosesFinalizer reports whether the PersistentVolume has the finalizer of a driver, which must be removed as soon as no
// VolumeAttachment names it: it is being deleted, or is an in-tree volume that was migrated back, from which csi-attacher
// removes its finalizer too.
func (v *Volume) LosesFinalizer(driver string) bool {
	return (v.Deleted != nil || v.MigratedTo != nil && *v.MigratedTo != driver) && HasFinalizer(v.Finalizers, Finalizer(driver))
}

func (v *Volume) meta() *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: v.Name, UID: v.UID, ResourceVersion: v.ResourceVersion, DeletionTimestamp: v.Deleted, Finalizers: v.Finalizers}
}

// Object returns a PersistentVolume with only its metadata, as the object of an Event.
func (v *Volume) Object() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: *v.meta()}
}

// GetObjectMeta, GetObjectKind and DeepCopyObject are what client-go's caches need of an object: name and version to compare
// it, and its type.
func (v *Volume) GetObjectMeta() metav1.Object     { return v.meta() }
func (v *Volume) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (v *Volume) DeepCopyObject() runtime.Object   { shared := *v; return &shared }

// source returns the volume that the objects of a VolumeAttachment specify now: its PersistentVolume, or its inline
// specification, which kube-controller-manager has translated.
func (f Inputs) source() (*Source, error) {
	source, v := f.VolumeAttachment.Spec.Source, f.PersistentVolume
	switch {
	case source.PersistentVolumeName != nil && source.InlineVolumeSpec != nil:
		return nil, errors.New("both inlineVolumeSpec and persistentVolumeName are given in the VolumeAttachment's source")
	case source.InlineVolumeSpec != nil:
		if source.InlineVolumeSpec.CSI == nil {
			return nil, errors.New("the VolumeAttachment's inlineVolumeSpec has no CSI source")
		}
		inline := sourceOf(source.InlineVolumeSpec)
		return &inline, nil
	case source.PersistentVolumeName == nil:
		return nil, errors.New("neither inlineVolumeSpec nor persistentVolumeName is given in the VolumeAttachment's source")
	case v == nil:
		return nil, fmt.Errorf("persistentvolume %q not found", *source.PersistentVolumeName)
	case v.noSource != nil:
		return nil, v.noSource
	}
	return &v.Source, nil
}
