package chaos

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// volume is one that pods use.
type volume struct {
	world   *world
	storage *storage
	name    string // of the PersistentVolume, and its handle
	inline  bool   // it has no PersistentVolume
	block   bool
	shared  bool   // any number of nodes may have it
	secret  string // empty: none
}

// object is the volume as it should be.
func (v *volume) object() testbed.PersistentVolume {
	pv := testbed.PersistentVolume{Name: v.name, Driver: v.storage.Name, Block: v.block}
	if v.shared {
		pv.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	if v.secret != "" {
		pv.Secret = &corev1.SecretReference{Namespace: namespace, Name: v.secret}
	}
	return pv
}

// create makes the PersistentVolume, if it is not there.
func (v *volume) create(ctx context.Context) error {
	return v.world.Cluster.Ensure(ctx, v.object())
}

// remove deletes the PersistentVolume and blocks until it is gone. Nothing may use it.
func (v *volume) remove(ctx context.Context) error {
	client := v.world.client.CoreV1().PersistentVolumes()
	var was types.UID
	err := testbed.Insist(ctx, "delete "+v.object().String(), func(ctx context.Context) error {
		pv, err := client.Get(ctx, v.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		was = pv.UID
		if err := client.Delete(ctx, v.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &was}}); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
	if err != nil || was == "" {
		return err
	}
	v.world.timeline.add(v.name, "PersistentVolume is deleted")
	// The API server is asked: after it was away, a watch may be behind for as long as a minute.
	return testbed.Insist(ctx, "see the end of "+v.object().String(), func(ctx context.Context) error {
		pv, err := client.Get(ctx, v.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && pv.UID == was {
			err = fmt.Errorf("it is still there, with finalizers %v", pv.Finalizers)
		}
		return err
	})
}

// replace has the PersistentVolume go in the regular way, and makes it again.
func (v *volume) replace(ctx context.Context) error {
	if err := v.remove(ctx); err != nil {
		return err
	}
	return v.create(ctx)
}

// vanish takes the PersistentVolume away with its finalizers.
func (v *volume) vanish(ctx context.Context) error {
	v.world.timeline.add(v.name, "PersistentVolume vanishes")
	client := v.world.client.CoreV1().PersistentVolumes()
	return testbed.Insist(ctx, "take away "+v.object().String(), func(ctx context.Context) error {
		if err := client.Delete(ctx, v.name, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		_, err := client.Patch(ctx, v.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
