package torture

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// volume is a volume that pods use.
type volume struct {
	world  *world
	driver int
	name   string // of the PersistentVolume, and its handle
	inline bool   // without a PersistentVolume
	block  bool
	shared bool // multi-node
	secret bool
	gone   atomic.Bool // for good: its PersistentVolume should not exist
}

// driverName returns the name of a driver, driverOf that of a volume's driver; empty: it is no volume of a run.
func driverName(driver int) string { return fmt.Sprintf("chaos-d%d", driver) }

func driverOf(volume string) string {
	d, _, ok := strings.Cut(volume, "-v")
	if !ok {
		return ""
	}
	return "chaos-" + d
}

func secret(driver int) testbed.Secret {
	return testbed.Secret{Namespace: namespace, Name: fmt.Sprintf("secret%d", driver), Data: map[string]string{"key": "value"}}
}

// object returns the PersistentVolume.
func (v *volume) object() testbed.PersistentVolume {
	pv := testbed.PersistentVolume{Name: v.name, Driver: driverName(v.driver), Block: v.block}
	if v.shared {
		pv.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	if v.secret {
		pv.Secret = &corev1.SecretReference{Namespace: namespace, Name: secret(v.driver).Name}
	}
	return pv
}

// remove deletes the PersistentVolume and blocks until it is gone. No pod may use it.
func (v *volume) remove(ctx context.Context) error {
	client := v.world.client.CoreV1().PersistentVolumes()
	// A watch may be a minute behind after an outage of the API server, so this asks the server.
	return testbed.Insist(ctx, "remove "+v.object().String(), func(ctx context.Context) error {
		pv, err := client.Get(ctx, v.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && pv.DeletionTimestamp == nil {
			err = client.Delete(ctx, v.name, metav1.DeleteOptions{})
		}
		return cmp.Or(err, fmt.Errorf("it is still there, with finalizers %v", pv.Finalizers))
	})
}
