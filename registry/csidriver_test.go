package registry_test

import (
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestObjectsAreSentWithTheirAnnotationAndWhetherTheyWindDown(t *testing.T) {
	object := func(name string, attachRequired *bool, annotations map[string]string) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec:       storagev1.CSIDriverSpec{AttachRequired: attachRequired},
		}
	}
	yes, no := true, false
	kube := fake.NewClientset(
		object("trivial", &no, map[string]string{registry.EndpointAnnotation: "unix:///csi/trivial"}),
		object("annotated", &yes, map[string]string{registry.EndpointAnnotation: "whatever it says"}),
		object("plain", &yes, map[string]string{"other": "unix:///csi/other"}),
		object("default", nil, nil),
	)
	r := runSource(t, registry.NewCSIDriverSource(kube.StorageV1()))
	want := []registry.Driver{
		{Name: "annotated", Endpoint: "whatever it says", Source: "CSIDriver annotated"},
		{Name: "default", Source: "CSIDriver default"},
		{Name: "plain", Source: "CSIDriver plain"},
		{Name: "trivial", Endpoint: "unix:///csi/trivial", Source: "CSIDriver trivial (attachRequired: false)", WindDown: true},
	}
	got := slices.SortedFunc(slices.Values(<-r.out), func(a, b registry.Driver) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the set differs (-want +got):\n%s", diff)
	}
}

func TestObjectsAreFollowed(t *testing.T) {
	kube := fake.NewClientset()
	watching := make(chan struct{}, 100)
	// What the fake is told between list and watch is seen by neither.
	kube.PrependWatchReactor("csidrivers", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := kube.Tracker().Watch(action.GetResource(), "")
		watching <- struct{}{}
		return true, w, err
	})
	client := kube.StorageV1().CSIDrivers()
	create := func(name string) {
		_, err := client.Create(t.Context(), &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		check(t, err)
	}
	source := registry.NewCSIDriverSource(kube.StorageV1())
	for range 2 { // it may run again
		r := runSource(t, source)
		r.expect()
		<-watching
		create("a")
		create("b")
		r.expect("a", "b")
		for _, name := range []string{"a", "b"} {
			check(t, client.Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		r.expect()
		create("a")
		check(t, client.Delete(t.Context(), "a", metav1.DeleteOptions{}))
		r.stop() // nobody receives
	}
}
