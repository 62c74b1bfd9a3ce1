package torture

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// volume is a volume that pods use.
type volume struct {
	world   *world
	storage *storage
	name    string // of the PersistentVolume, and its handle
	inline  bool   // without a PersistentVolume
	block   bool
	shared  bool   // multi-node
	secret  string // empty: none
}

// object returns the PersistentVolume.
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

// create makes the PersistentVolume unless it exists.
func (v *volume) create(ctx context.Context) error {
	return v.world.Cluster.Ensure(ctx, v.object())
}

// remove deletes the PersistentVolume and blocks until it is gone. No pod may use it.
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
	v.world.history.add(v.name, "PersistentVolume is deleted")
	// A watch may be a minute behind after an outage of the API server, so this asks the server.
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

// replace removes the PersistentVolume and makes it again.
func (v *volume) replace(ctx context.Context) error {
	if err := v.remove(ctx); err != nil {
		return err
	}
	return v.create(ctx)
}

// vanish deletes the PersistentVolume and removes its finalizers.
func (v *volume) vanish(ctx context.Context) error {
	v.world.history.add(v.name, "PersistentVolume vanishes")
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
