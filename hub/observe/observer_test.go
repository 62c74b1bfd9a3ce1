package observe_test

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const driver = "d.example.com"

// newObserver returns an Observer with a PersistentVolume "pv" and a node on which the driver has registered the
// node ID "id".
func newObserver(t *testing.T) *observe.Observer {
	t.Helper()
	cluster := cache.New(fake.NewClientset())
	err := cachetest.Put(cluster,
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle"}}}},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "id"}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &observe.Observer{Metrics: status.NewMetrics().Driver(driver), Cluster: cluster, Decider: func() (attach.Driver, bool) {
		return attach.Driver{Name: driver, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}, true
	}}
}

// The states of a VolumeAttachment that csi-attacher makes.
func created(uid types.UID) *storagev1.VolumeAttachment {
	pv := "pv"
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: uid},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
}

func attached(uid types.UID, nodeID string) *storagev1.VolumeAttachment {
	va := created(uid)
	va.Finalizers = []string{attach.Finalizer(driver)}
	va.Annotations = map[string]string{attach.AnnotationNodeID: nodeID}
	va.Status.Attached = true
	return va
}

func deleted(va *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	va.DeletionTimestamp = &metav1.Time{}
	return va
}

func released(va *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	va.Finalizers = nil
	va.Status.Attached = false
	return va
}

func TestEachAttachAndEachDetachOfAVolumeAttachmentCountsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		states []*storagev1.VolumeAttachment // nil: it is gone
		want   status.Observed
	}{
		"waits":                      {[]*storagev1.VolumeAttachment{created("1")}, status.Observed{Pending: 1}},
		"attached":                   {[]*storagev1.VolumeAttachment{created("1"), attached("1", "id"), attached("1", "id")}, status.Observed{Agreed: 1}},
		"attached elsewhere":         {[]*storagev1.VolumeAttachment{attached("1", "other")}, status.Observed{Differs: 1}},
		"noted anew after attaching": {[]*storagev1.VolumeAttachment{attached("1", "id"), attached("1", "other")}, status.Observed{Agreed: 1}},
		"detaching":                  {[]*storagev1.VolumeAttachment{attached("1", "id"), deleted(attached("1", "id"))}, status.Observed{Agreed: 1}},
		"detached":                   {[]*storagev1.VolumeAttachment{attached("1", "id"), deleted(attached("1", "id")), nil}, status.Observed{Agreed: 2}},
		"seen without its finalizer before it is gone": {[]*storagev1.VolumeAttachment{attached("1", "id"), deleted(attached("1", "id")),
			released(deleted(attached("1", "id"))), nil}, status.Observed{Agreed: 2}},
		"gone before it was attached":    {[]*storagev1.VolumeAttachment{created("1"), deleted(created("1")), nil}, status.Observed{}},
		"first seen when it detaches":    {[]*storagev1.VolumeAttachment{deleted(attached("1", "id"))}, status.Observed{Pending: 1}},
		"first seen when it is detached": {[]*storagev1.VolumeAttachment{released(deleted(attached("1", "id"))), nil}, status.Observed{}},
		"deletion was not seen":          {[]*storagev1.VolumeAttachment{attached("1", "id"), nil}, status.Observed{Agreed: 1}},
		"made anew": {[]*storagev1.VolumeAttachment{attached("1", "id"), deleted(attached("1", "id")), attached("2", "id")},
			status.Observed{Agreed: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserver(t)
			var last *storagev1.VolumeAttachment
			for _, va := range c.states {
				var err error
				if va != nil {
					err = cachetest.Put(o.Cluster, va)
				} else {
					err = cachetest.Remove(o.Cluster, created("1"))
				}
				if err != nil {
					t.Fatal(err)
				}
				o.AttachmentChanged(last, va)
				last = va
			}
			got := o.Report()
			got.Disagreements = nil
			if !reflect.DeepEqual(*got, c.want) {
				t.Errorf("observed %+v, want %+v", *got, c.want)
			}
		})
	}
}

// The watches report the objects in no order.
func TestAttachCountsOnceTheCachesHaveItsVolumeAndItsNode(t *testing.T) {
	o := newObserver(t)
	va, name, node := attached("1", "id"), "late", "late"
	va.Spec.Source.PersistentVolumeName, va.Spec.NodeName = &name, node
	if err := cachetest.Put(o.Cluster, va); err != nil {
		t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle"}}}}
	for _, late := range []any{pv, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "id"}}}}} {
		o.LookAtAll()
		if got := o.Report(); !reflect.DeepEqual(*got, status.Observed{Pending: 1}) {
			t.Errorf("observed %+v before there is %T", got, late)
		}
		if err := cachetest.Put(o.Cluster, late); err != nil {
			t.Fatal(err)
		}
	}
	o.Look("va")
	if got := o.Report(); !reflect.DeepEqual(*got, status.Observed{Agreed: 1}) {
		t.Errorf("observed %+v when all is known", got)
	}
}

// The watch and the connection to the driver call in goroutines of their own.
func TestVolumeAttachmentThatGoesWhileAllAreLookedAtIsForgotten(t *testing.T) {
	o := newObserver(t)
	var all []*storagev1.VolumeAttachment
	for i := range 2000 {
		va := created(types.UID(fmt.Sprint(i)))
		va.Name = fmt.Sprint("va-", i)
		if err := cachetest.Put(o.Cluster, va); err != nil {
			t.Fatal(err)
		}
		all = append(all, va)
	}
	var others sync.WaitGroup
	others.Go(o.LookAtAll)
	for _, va := range slices.Backward(all) {
		if err := cachetest.Remove(o.Cluster, va); err != nil {
			t.Fatal(err)
		}
		o.AttachmentChanged(va, nil)
	}
	others.Wait()
	if got := o.Report(); got.Pending > 0 {
		t.Errorf("%d of no VolumeAttachment are pending", got.Pending)
	}
}

// The cache may be ahead of the events that are handled.
func TestDetachCountsAlsoIfTheCacheHasDroppedItsObjectBeforeItsDeletionIsSeen(t *testing.T) {
	o, va := newObserver(t), attached("1", "id")
	if err := cachetest.Put(o.Cluster, va); err != nil {
		t.Fatal(err)
	}
	o.AttachmentChanged(nil, va)
	if err := cachetest.Remove(o.Cluster, va); err != nil {
		t.Fatal(err)
	}
	o.AttachmentChanged(va, deleted(attached("1", "id")))
	o.AttachmentChanged(released(deleted(attached("1", "id"))), nil)
	if got := o.Report(); !reflect.DeepEqual(*got, status.Observed{Agreed: 2}) {
		t.Errorf("observed %+v, want the attach and the detach", got)
	}
}
