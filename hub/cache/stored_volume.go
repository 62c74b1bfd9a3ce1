package cache

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// StoredVolume is a PersistentVolume as its cache keeps it: trimmed and encoded, except for the fields that
// events and indexes need. Most PersistentVolumes are never looked at, and a decoded object takes
// several times the memory.
//
// It does not implement runtime.Object. Of client-go's informers only the mutation detector needs that,
// which is off unless an environment variable switches it on.
type StoredVolume struct {
	name, version string
	handle        string   // "" if it has none
	finalizers    []string // only those of attachers
	encoded       string   // all except name, version and, of a CSI volume, handle
	releasable    bool     // see Releasable
	multiNode     bool     // see MultiNode
}

// StoreVolume trims and encodes a PersistentVolume. It changes pv, which the caller must not use
// any more.
func StoreVolume(pv *corev1.PersistentVolume) (*StoredVolume, error) {
	trimPersistentVolume(pv)
	v := &StoredVolume{name: pv.Name, version: pv.ResourceVersion,
		handle: attach.VolumeHandle(pv), multiNode: attach.SurelyMultiNode(pv),
		releasable: pv.DeletionTimestamp != nil || pv.Spec.CSI == nil}
	for _, finalizer := range pv.Finalizers {
		if strings.HasPrefix(finalizer, attach.FinalizerPrefix) {
			v.finalizers = append(v.finalizers, finalizer)
		}
	}
	internEach(v.finalizers)
	pv.Name, pv.ResourceVersion = "", ""
	if pv.Spec.CSI != nil {
		pv.Spec.CSI.VolumeHandle = ""
	}
	encoded, err := pv.Marshal()
	if err != nil { // cannot happen; the cache would lack the object
		return nil, fmt.Errorf("encode PersistentVolume %s: %w", v.name, err)
	}
	v.encoded = string(encoded)
	return v, nil
}

// PersistentVolume returns the decoded object, which is the caller's own. It returns nil if v is nil.
func (v *StoredVolume) PersistentVolume() *corev1.PersistentVolume {
	if v == nil {
		return nil
	}
	pv := &corev1.PersistentVolume{}
	if err := pv.Unmarshal([]byte(v.encoded)); err != nil {
		panic(fmt.Sprintf("decode PersistentVolume %s as it was stored: %v", v.name, err))
	}
	pv.Name, pv.ResourceVersion = v.name, v.version
	if pv.Spec.CSI != nil {
		pv.Spec.CSI.VolumeHandle = v.handle
	}
	return pv
}

// Name returns the name of the PersistentVolume.
func (v *StoredVolume) Name() string { return v.name }

// Handle returns the volume handle, "" if there is none. For an in-tree volume that is the handle after
// its translation to CSI.
func (v *StoredVolume) Handle() string { return v.handle }

// MultiNode reports whether the access mode of the volume is known to be MULTI_NODE.
func (v *StoredVolume) MultiNode() bool { return v.multiNode }

// Claim returns the PersistentVolumeClaim that the PersistentVolume is bound to, "" if there is none. It reads
// the encoded object: a field would take memory for each PersistentVolume, and few are asked for.
func (v *StoredVolume) Claim() (namespace, name string) {
	if v == nil {
		return "", ""
	}
	claim := protoField(protoField([]byte(v.encoded), specField), claimRefField)
	return string(protoField(claim, namespaceField)), string(protoField(claim, nameField))
}

// Secret returns the Secret that calls for a volume of a CSI driver need, and false if it needs none or is of another driver.
// It reads the encoded object, as Claim does.
func (v *StoredVolume) Secret(driver string) (corev1.SecretReference, bool) {
	csi := protoField(protoField(protoField([]byte(v.encoded), specField), sourceField), csiField)
	secret := protoField(csi, secretField)
	if secret == nil || string(protoField(csi, driverField)) != driver {
		return corev1.SecretReference{}, false
	}
	return corev1.SecretReference{Namespace: string(protoField(secret, namespaceField)), Name: string(protoField(secret, secretName))}, true
}

// Finalizers returns the finalizers of attachers that the PersistentVolume has, no others. The
// caller must not change them.
func (v *StoredVolume) Finalizers() []string { return v.finalizers }

// Releasable reports whether a finalizer of an attacher may have to be removed: the PersistentVolume is being deleted,
// or is no CSI volume.
func (v *StoredVolume) Releasable() bool { return v.releasable }

// GetObjectMeta implements metav1.ObjectMetaAccessor: client-go's caches need the name and the
// resourceVersion.
func (v *StoredVolume) GetObjectMeta() metav1.Object { return v.objectMeta() }

func (v *StoredVolume) objectMeta() *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Name: v.name, ResourceVersion: v.version}
}

// LostFinalizers returns the finalizers of attachers that an earlier state has and v does not have.
func (v *StoredVolume) LostFinalizers(before *StoredVolume) []string {
	var lost []string
	for _, finalizer := range before.finalizers {
		if !slices.Contains(v.finalizers, finalizer) {
			lost = append(lost, finalizer)
		}
	}
	return lost
}

// volumeStore is the cache of PersistentVolumes for an Overlay: GetByKey decodes.
type volumeStore struct{ toolscache.Store }

// GetByKey returns a *corev1.PersistentVolume.
func (s volumeStore) GetByKey(key string) (any, bool, error) {
	obj, ok, err := s.Store.GetByKey(key)
	if !ok || err != nil {
		return nil, false, err
	}
	return obj.(*StoredVolume).PersistentVolume(), true, nil
}
