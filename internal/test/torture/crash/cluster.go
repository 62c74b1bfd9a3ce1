package crash

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// list asks the API server for all objects.
func (r *run) list(ctx context.Context) (objects, error) {
	o := objects{map[string]storagev1.VolumeAttachment{}, map[string]corev1.PersistentVolume{}}
	vas, err := r.cluster.Client().StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, err
	}
	pvs, err := r.cluster.Client().CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, err
	}
	for _, va := range vas.Items {
		o.attachments[va.Name] = va
	}
	for _, pv := range pvs.Items {
		o.volumes[pv.Name] = pv
	}
	return o, nil
}

// caughtUp waits until the newest object of a resource that belongs to the batch has passed to the process that
// takes over.
func (r *run) caughtUp(ctx context.Context, resource string) error {
	newest, version := uint64(0), ""
	look := func(o metav1.Object) error {
		n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		if err == nil && n > newest && strings.HasPrefix(o.GetName(), "crash-"+r.Name+"-") {
			newest, version = n, o.GetResourceVersion()
		}
		return err
	}
	switch resource {
	case "csinodes":
		nodes, err := r.cluster.Client().StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range nodes.Items {
			if err := look(&nodes.Items[i]); err != nil {
				return err
			}
		}
	default:
		o, err := r.list(ctx)
		if err != nil {
			return err
		}
		for _, va := range o.attachments {
			if resource == "volumeattachments" {
				err = look(&va)
			}
		}
		for _, pv := range o.volumes {
			if resource == "persistentvolumes" {
				err = look(&pv)
			}
		}
		if err != nil {
			return err
		}
	}
	if version == "" {
		return nil // there is none yet
	}
	what := fmt.Sprintf("the newest of the %s has passed to the %s", resource, r.successor().name)
	return waitUntil(ctx, what, func() bool { return r.successor().proxy.Lags[resource].Has(version) })
}

// touch changes a VolumeAttachment that no hub serves. A hub that has taken over removes finalizers from
// PersistentVolumes when it has seen an event or a bookmark from after that, and bookmarks come once a minute.
func (r *run) touch(ctx context.Context) error {
	if time.Since(r.touched) < time.Second {
		return nil
	}
	r.touched = time.Now()
	va := testbed.VolumeAttachment{Name: "touch-" + r.Name, Driver: "nobody", Node: "nowhere", PersistentVolume: "none"}
	if err := r.cluster.Delete(ctx, va); err != nil {
		return err
	}
	return r.cluster.Create(ctx, va)
}

// readHolder reads the identity of the process that is killed from the leases. The first process is read
// while it alone has leases.
func (r *run) readHolder(ctx context.Context) error {
	leases, err := r.cluster.Client().CoordinationV1().Leases(r.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" && *l.Spec.HolderIdentity != r.holder {
			r.holder = *l.Spec.HolderIdentity
			return nil
		}
	}
	return nil
}

// expire lets the leases of the dead process expire a second from now, instead of after their duration.
func (r *run) expire(ctx context.Context) error {
	client := r.cluster.Client().CoordinationV1().Leases(r.namespace())
	leases, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != r.holder || r.holder == "" {
			continue
		}
		l.Spec.LeaseDurationSeconds = new(int32(1))
		if _, err := client.Update(ctx, &l, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// signalStop asks a process to end.
func (p *process) signalStop() error { return p.Signal(syscall.SIGTERM) }
