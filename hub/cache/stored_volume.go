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

// StoredVolume is a PersistentVolume as its cache keeps it: trimmed and encoded, but for
// what events and indexes ask. Most volumes are never looked at, and as an object each
// takes several times the memory. It is no runtime.Object, which client-go's informers do
// not ask for, but for their detectors of mistakes that environment variables switch on.
type StoredVolume struct {
	name, version string
	finalizers    []string // its finalizers of attachers
	releasable    bool     // see releasableIndex
	encoded       []byte   // all but name and version
}

// StoreVolume takes the object over.
func StoreVolume(pv *corev1.PersistentVolume) (*StoredVolume, error) {
	trimPersistentVolume(pv)
	v := &StoredVolume{name: pv.Name, version: pv.ResourceVersion, releasable: pv.DeletionTimestamp != nil || pv.Spec.CSI == nil}
	for _, finalizer := range pv.Finalizers {
		if strings.HasPrefix(finalizer, attach.FinalizerPrefix) {
			v.finalizers = append(v.finalizers, finalizer)
		}
	}
	internEach(v.finalizers)
	pv.Name, pv.ResourceVersion = "", ""
	var err error
	if v.encoded, err = pv.Marshal(); err != nil { // cannot happen: the informer would stay without it
		return nil, fmt.Errorf("encode PersistentVolume %s: %w", v.name, err)
	}
	return v, nil
}

// Volume returns the object, which is the caller's own.
func (v *StoredVolume) PersistentVolume() *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{}
	if err := pv.Unmarshal(v.encoded); err != nil {
		panic(fmt.Sprintf("decode PersistentVolume %s as it was stored: %v", v.name, err))
	}
	pv.Name, pv.ResourceVersion = v.name, v.version
	return pv
}

// Name returns the name of the PersistentVolume.
func (v *StoredVolume) Name() string { return v.name }

// Guards returns its finalizers of attachers, which must not be changed.
func (v *StoredVolume) Finalizers() []string { return v.finalizers }

// GetObjectMeta is what a cache needs of an object.
func (v *StoredVolume) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: v.name, ResourceVersion: v.version}
}

// LostFinalizers returns the finalizers of attachers that a volume had before and has no more.
func (v *StoredVolume) LostFinalizers(before *StoredVolume) []string {
	var lost []string
	for _, finalizer := range before.finalizers {
		if !slices.Contains(v.finalizers, finalizer) {
			lost = append(lost, finalizer)
		}
	}
	return lost
}

// releasableIndex leaves out the volumes that just live, which are nearly all.
func releasableIndex(obj any) ([]string, error) {
	v, ok := obj.(*StoredVolume)
	if !ok {
		return nil, fmt.Errorf("index %T as a PersistentVolume", obj)
	}
	if !v.releasable {
		return nil, nil
	}
	return v.finalizers, nil
}

// volumeStore is a cache of stored volumes for an overlay, which gets objects by key and
// wants them decoded.
type volumeStore struct{ toolscache.Store }

// GetByKey implements toolscache.Store, with a *corev1.PersistentVolume.
func (s volumeStore) GetByKey(key string) (any, bool, error) {
	obj, ok, err := s.Store.GetByKey(key)
	if !ok || err != nil {
		return nil, false, err
	}
	return obj.(*StoredVolume).PersistentVolume(), true, nil
}
