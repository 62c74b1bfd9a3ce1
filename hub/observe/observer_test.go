package observe_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/observe"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const driver = "d.example.com"

// newOptions returns Options with a PersistentVolume "pv" and a node on which the driver has registered the
// node ID "id".
func newOptions(t *testing.T) observe.Options {
	t.Helper()
	kube := fake.NewClientset()
	cluster, err := cache.New(kube)
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.Put(
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "handle"}}}},
		&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "id"}}}})
	if err != nil {
		t.Fatal(err)
	}
	return observe.Options{Driver: driver, Cluster: cluster, Secrets: kube.CoreV1(), Decider: func() (attach.Driver, bool) {
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
		"gone before it was attached": {[]*storagev1.VolumeAttachment{created("1"), deleted(created("1")), nil}, status.Observed{}},
		"deletion was not seen":       {[]*storagev1.VolumeAttachment{attached("1", "id"), nil}, status.Observed{Agreed: 1}},
		"made anew": {[]*storagev1.VolumeAttachment{attached("1", "id"), deleted(attached("1", "id")), attached("2", "id")},
			status.Observed{Agreed: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := newOptions(t)
				o := observe.New(options)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- o.Run(ctx) }()
				for _, va := range c.states {
					var err error
					if va != nil {
						err = options.Cluster.Put(va)
					} else {
						err = options.Cluster.Remove(created("1"))
					}
					if err != nil {
						t.Fatal(err)
					}
					o.Look("va")
					synctest.Wait()
				}
				got, _ := o.Report(status.Driver{})
				got.Disagreements = nil
				if !reflect.DeepEqual(*got, c.want) {
					t.Errorf("observed %+v, want %+v", *got, c.want)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Errorf("the run ended with %v", err)
				}
			})
		})
	}
}

func TestPanicWhileComparingEndsTheRunWithAnError(t *testing.T) {
	options := newOptions(t)
	options.Decider = func() (attach.Driver, bool) { panic("odd answer") }
	o := observe.New(options)
	o.Look("va")
	if err := o.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "odd answer") {
		t.Errorf("the run ended with %v, want the panic", err)
	}
}

// The hub is mostly connected to the socket of the node plugin then.
func TestChecklistIsRedForADriverThatWasCalledAndHasNoCapability(t *testing.T) {
	trivial := created("3")
	trivial.Name, trivial.Status.Attached = "trivial", true
	noted := created("1")
	noted.Annotations = map[string]string{attach.AnnotationNodeID: "id"}
	guarded := created("2")
	guarded.Name, guarded.Finalizers = "guarded", []string{attach.Finalizer(driver)}
	for name, c := range map[string]struct {
		all    []*storagev1.VolumeAttachment
		decide attach.Driver
		ok     bool
		text   string
	}{
		"none":          {nil, attach.Driver{}, true, "marked attached without a call"},
		"never called":  {[]*storagev1.VolumeAttachment{trivial}, attach.Driver{}, true, "marked attached without a call"},
		"called before": {[]*storagev1.VolumeAttachment{trivial, noted, guarded}, attach.Driver{}, false, "2 VolumeAttachments have the finalizer or the node ID that the other attacher writes before it calls the driver: unix:///node may be the socket of the node plugin"},
		"can be called": {[]*storagev1.VolumeAttachment{noted}, attach.Driver{Capabilities: csiclient.Capabilities{PublishUnpublish: true}}, true, "PUBLISH_UNPUBLISH_VOLUME"},
		"no attach":     {[]*storagev1.VolumeAttachment{noted}, attach.Driver{NoAttach: true}, false, "nothing to hand over"},
	} {
		options := newOptions(t)
		c.decide.Name = driver
		options.Decider = func() (attach.Driver, bool) { return c.decide, true }
		for _, va := range c.all {
			if err := options.Cluster.Put(va); err != nil {
				t.Fatal(err)
			}
		}
		_, checks := observe.New(options).Report(status.Driver{Endpoint: "unix:///node"})
		i := slices.IndexFunc(checks, func(c status.Check) bool { return c.Name == "capabilities" })
		if got := checks[i]; got.OK != c.ok || !strings.Contains(got.Text, c.text) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// Two attachers would work for the driver if a hub that is made active took the lease while a csi-attacher without
// leader election goes on.
func TestOnlyALeaseThatIsSeenRenewedIsHeld(t *testing.T) {
	for text, l := range map[string]status.Lease{
		"nobody holds ns/l: ": {Namespace: "ns", Name: "l"},
		"not known yet: the hub has not seen sidecar renew ns/l": {Namespace: "ns", Name: "l", Holder: "sidecar"},
		"ns/l was not renewed for 3m45s, last by sidecar: nobody holds it; made active, the hub takes it at once. A csi-attacher without leader election may still work": {Namespace: "ns", Name: "l", LastHolder: "sidecar", Renewed: time.Now().Add(-225 * time.Second)},
		"ns/l is held by sidecar: made active, the hub waits for it": {Namespace: "ns", Name: "l", Holder: "sidecar", Renews: true},
	} {
		_, checks := observe.New(newOptions(t)).Report(status.Driver{Lease: l})
		c := checks[slices.IndexFunc(checks, func(c status.Check) bool { return c.Name == "lease" })]
		if !strings.HasPrefix(c.Text, text) || c.OK != l.Renews {
			t.Errorf("%+v, want %q", c, text)
		}
	}
}
