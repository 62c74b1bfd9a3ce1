package cache

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

func TestVolumeAttachmentsAreFoundByDriverVolumeNodeAndNotedNodeID(t *testing.T) {
	c := unwatched(t)
	attachment := func(name, driver, volume, node, nodeID string) *storagev1.VolumeAttachment {
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node}}
		if volume != "" {
			va.Spec.Source.PersistentVolumeName = &volume
		}
		if nodeID != "" {
			va.Annotations = map[string]string{attach.AnnotationNodeID: nodeID, attach.AnnotationVolumeHandle: "handle"}
		}
		return va
	}
	must(t, put(c, attachment("a", "one", "pv-1", "node-1", "id-1"), attachment("b", "one", "pv-2", "node-2", ""), attachment("c", "two", "", "node-1", "id-1")))
	for _, lookup := range []struct {
		of   string
		got  []*storagev1.VolumeAttachment
		want []string
	}{
		{"driver one", c.AttachmentsOfDriver("one"), []string{"a", "b"}},
		{"driver two", c.AttachmentsOfDriver("two"), []string{"c"}},
		{"another driver", c.AttachmentsOfDriver("three"), nil},
		{"volume", c.AttachmentsOfVolume("pv-1"), []string{"a"}},
		{"no volume", c.AttachmentsOfVolume(""), nil},
		{"node", c.AttachmentsOnNode("node-1"), []string{"a", "c"}},
		{"node ID", c.AttachmentsAtNodeID("id-1"), []string{"a", "c"}},
		{"no node ID", c.AttachmentsAtNodeID(""), nil},
		{"all", c.AllAttachments(), []string{"a", "b", "c"}},
	} {
		var names []string
		for _, va := range lookup.got {
			names = append(names, va.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, lookup.want) {
			t.Errorf("%s: got %v, want %v", lookup.of, names, lookup.want)
		}
	}
}

func TestVolumesThatShareAValueOfTheIndexAreToldApart(t *testing.T) {
	c := unwatched(t)
	one, other := "pv", ""
	for i := 0; other == ""; i++ {
		if name := fmt.Sprintf("pv-%d", i); volumeBucket(name) == volumeBucket(one) {
			other = name
		}
	}
	if err := put(c, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"},
		Spec: storagev1.VolumeAttachmentSpec{Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &one}}}); err != nil {
		t.Fatal(err)
	}
	if got := c.AttachmentsOfVolume(one); len(got) != 1 || !c.VolumeInUse(one) {
		t.Errorf("%v of %s, in use %v; want its VolumeAttachment", got, one, c.VolumeInUse(one))
	}
	if got := c.AttachmentsOfVolume(other); len(got) != 0 || c.VolumeInUse(other) {
		t.Errorf("%v of %s, in use %v; want none", got, other, c.VolumeInUse(other))
	}
}

// csi-attacher notes no volume handle: without the PersistentVolume nobody can say what to detach.
func TestLastStateOfADeletedVolumeIsKeptOnlyWhileAVolumeAttachmentNamesIt(t *testing.T) {
	c, name := unwatched(t), "pv"
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: someDriver, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}}
	last := stored(volumeWithFinalizer())
	c.KeepDeleted(last)
	if pv := c.VolumeOrDeleted(name); pv != nil {
		t.Errorf("%v is kept for nobody", pv)
	}
	must(t, put(c, va))
	c.KeepDeleted(last)
	if pv := c.VolumeOrDeleted(name); pv == nil || pv.Handle != "handle" {
		t.Errorf("got %v, want the last state", pv)
	}
	c.DropDeleted(name)
	if pv := c.VolumeOrDeleted(name); pv != nil {
		t.Errorf("%v is still kept", pv)
	}
}

// Older API servers take any text for the name of the PersistentVolume in a
// VolumeAttachment, that of today does not, so it cannot be asked for one.
func TestVolumeOfANameThatNoneCanHaveIsNotThereAndNotAskedFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	defer server.Close()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	must(t, err)
	cluster := New(kube)
	for _, name := range []string{"", ".", "..", "../../api/v1/secrets", "a/status", "%2e%2e?a=b#c", "Ü \u202e\x00\n", strings.Repeat("v", 254)} {
		if pv, err := cluster.ReadVolume(t.Context(), name); pv != nil || err != nil {
			t.Errorf("%.20q: got %v, %v", name, pv, err)
		}
	}
}

// put stores objects in the form in which the watch would, without an event, as cachetest.Put does.
func put(c *Cluster, objects ...any) error {
	for _, obj := range objects {
		kept, err := Transform(obj)
		if err != nil {
			return err
		}
		if err := informerOf(c, kept).GetIndexer().Add(kept); err != nil {
			return err
		}
	}
	return nil
}

func removeFrom(c *Cluster, obj any) error { return informerOf(c, obj).GetIndexer().Delete(obj) }

func informerOf(c *Cluster, obj any) toolscache.SharedIndexInformer {
	switch obj.(type) {
	case *storagev1.VolumeAttachment:
		return c.Attachments
	case *storagev1.CSINode:
		return c.Nodes
	case *storagev1.CSIDriver:
		return c.Drivers
	}
	return c.Volumes
}
