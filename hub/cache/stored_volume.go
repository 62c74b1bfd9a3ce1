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
	guards        []string // its finalizers of attachers
	lives         bool     // see guardianIndex
	encoded       []byte   // all but name and version
}

// StoreVolume takes the object over.
func StoreVolume(pv *corev1.PersistentVolume) (*StoredVolume, error) {
	trimPersistentVolume(pv)
	v := &StoredVolume{name: pv.Name, version: pv.ResourceVersion, lives: pv.DeletionTimestamp == nil && pv.Spec.CSI != nil}
	for _, finalizer := range pv.Finalizers {
		if strings.HasPrefix(finalizer, attach.FinalizerPrefix) {
			v.guards = append(v.guards, finalizer)
		}
	}
	shareEach(v.guards)
	pv.Name, pv.ResourceVersion = "", ""
	var err error
	if v.encoded, err = pv.Marshal(); err != nil { // cannot happen: the informer would stay without it
		return nil, fmt.Errorf("encode PersistentVolume %s: %w", v.name, err)
	}
	return v, nil
}

// Volume returns the object, which is the caller's own.
func (v *StoredVolume) Volume() *corev1.PersistentVolume {
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
func (v *StoredVolume) Guards() []string { return v.guards }

// GetObjectMeta is what a cache needs of an object.
func (v *StoredVolume) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Name: v.name, ResourceVersion: v.version}
}

// GuardsLost returns the finalizers of attachers that a volume had before and has no more.
func (v *StoredVolume) GuardsLost(before *StoredVolume) []string {
	var lost []string
	for _, finalizer := range before.guards {
		if !slices.Contains(v.guards, finalizer) {
			lost = append(lost, finalizer)
		}
	}
	return lost
}

// guardianIndex leaves out the volumes that just live, which are nearly all.
func guardianIndex(obj any) ([]string, error) {
	v, ok := obj.(*StoredVolume)
	if !ok {
		return nil, fmt.Errorf("index %T as a PersistentVolume", obj)
	}
	if v.lives {
		return nil, nil
	}
	return v.guards, nil
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
	return obj.(*StoredVolume).Volume(), true, nil
}
