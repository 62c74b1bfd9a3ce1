package preflight

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// pageSize is the number of objects that are in memory at once.
const pageSize = 500

// usage is what the cluster has of a driver.
type usage struct {
	attachments int             // VolumeAttachments
	recorded    int             // of these, how many record a call to the driver
	wanted      map[string]bool // nodes of VolumeAttachments that are not being deleted
	registered  map[string]bool // nodes whose CSINode has a node ID of the driver
	secrets     map[corev1.SecretReference]bool
	noAttach    bool // attachRequired of its CSIDriver is false
}

// cluster is the usage of each driver that is checked.
type cluster struct {
	drivers map[string]*usage
	err     error // nil if all could be read
}

func newCluster(drivers []registry.Driver) *cluster {
	c := &cluster{drivers: map[string]*usage{}}
	for _, d := range drivers {
		c.drivers[d.Name] = &usage{wanted: map[string]bool{}, registered: map[string]bool{}, secrets: map[corev1.SecretReference]bool{}}
	}
	return c
}

// read lists the objects, page by page.
func (c *cluster) read(ctx context.Context, kube Kube) {
	storage := kube.StorageV1()
	for _, list := range []struct {
		what string
		read func() error
	}{
		{"csidrivers", func() error {
			return eachPage(ctx, storage.CSIDrivers().List, func(l *storagev1.CSIDriverList) []storagev1.CSIDriver { return l.Items }, c.sawDriver)
		}},
		{"volumeattachments", func() error {
			return eachPage(ctx, storage.VolumeAttachments().List, func(l *storagev1.VolumeAttachmentList) []storagev1.VolumeAttachment { return l.Items }, c.sawAttachment)
		}},
		{"csinodes", func() error {
			return eachPage(ctx, storage.CSINodes().List, func(l *storagev1.CSINodeList) []storagev1.CSINode { return l.Items }, c.sawNode)
		}},
		{"persistentvolumes", func() error {
			return eachPage(ctx, kube.CoreV1().PersistentVolumes().List, func(l *corev1.PersistentVolumeList) []corev1.PersistentVolume { return l.Items }, func(pv *corev1.PersistentVolume) { c.sawSource(pv.Spec.CSI) })
		}},
	} {
		if err := list.read(); err != nil {
			c.err = fmt.Errorf("list %s: %w", list.what, err)
			return
		}
	}
}

// eachPage calls see with each object of a list, and keeps one page in memory.
func eachPage[L metav1.ListInterface, T any](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T, see func(*T)) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		all := items(page)
		for i := range all {
			see(&all[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (c *cluster) sawDriver(d *storagev1.CSIDriver) {
	if u := c.drivers[d.Name]; u != nil {
		u.noAttach = !ptr.Deref(d.Spec.AttachRequired, true)
	}
}

func (c *cluster) sawAttachment(va *storagev1.VolumeAttachment) {
	u := c.drivers[va.Spec.Attacher]
	if u == nil {
		return
	}
	u.attachments++
	u.recorded += attach.Driver{Name: va.Spec.Attacher, NoAttach: u.noAttach}.RecordedCalls(func() []*storagev1.VolumeAttachment { return []*storagev1.VolumeAttachment{va} })
	if va.DeletionTimestamp == nil {
		u.wanted[va.Spec.NodeName] = true
	}
	if inline := va.Spec.Source.InlineVolumeSpec; inline != nil {
		c.sawSource(inline.CSI)
	}
}

func (c *cluster) sawNode(n *storagev1.CSINode) {
	for name, u := range c.drivers {
		if id, _ := attach.NodeID(n, name); id != "" {
			u.registered[n.Name] = true
		}
	}
}

func (c *cluster) sawSource(source *corev1.CSIPersistentVolumeSource) {
	if source == nil || source.ControllerPublishSecretRef == nil {
		return
	}
	if u := c.drivers[source.Driver]; u != nil {
		u.secrets[*source.ControllerPublishSecretRef] = true
	}
}
