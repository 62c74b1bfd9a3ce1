package torture

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// recorded returns a client behind a proxy as hubs have it, and the history of its writes.
func recorded(t *testing.T) (kubernetes.Interface, *proxy, *history) {
	plane := testbed.Shared(t)
	h, err := openHistory(t.TempDir()+"/h", func(int) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	path := testbed.ShortTempDir(t) + "/kubeconfig"
	p, err := newProxy(plane, path, 1, &recorder{history: h, by: "hub0", process: func() string { return "hub0/7" }, driver: func(string) string { return "d" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.Timeout = 10 * time.Second
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfigOrDie(config), p, h
}

func TestTheWritesOfAnAttachmentAreRecordedWithTheirOutcome(t *testing.T) {
	client, p, h := recorded(t)
	vas := client.StorageV1().VolumeAttachments()
	va := testbed.VolumeAttachment{Name: "rec-v0-p0.node1", Driver: "d", Node: "node1", PersistentVolume: "rec-v0"}.Build()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(vas.Create(t.Context(), va, metav1.CreateOptions{}))
	patch := func(body string, subresources ...string) (*storagev1.VolumeAttachment, error) {
		return vas.Patch(t.Context(), va.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...)
	}
	must(patch(fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, attach.Finalizer("d"))))
	must(patch(`{"status":{"attached":true}}`, "status"))
	must(nil, vas.Delete(t.Context(), va.Name, metav1.DeleteOptions{}))
	end := p.begin(trouble{kind: APIError, share: 1})
	if _, err := patch(`{}`); err == nil {
		t.Error("the trouble has not hit")
	}
	end()
	must(patch(`{"metadata":{"finalizers":null}}`))
	if _, err := patch(`{}`); err == nil {
		t.Error("the object is still there")
	}
	var got []string
	last := write{}
	for _, w := range h.take().writes {
		if w.By != "hub0" || w.place != (place{Driver: "d", Volume: "rec-v0", Node: "id-of-node1"}) || !strings.HasPrefix(w.Object, "volumeattachments/rec-v0-p0.node1") || w.Until < w.At {
			t.Errorf("recorded %+v", w)
		}
		if w.known() && !w.follows(last) {
			t.Errorf("%+v does not follow %+v", w, last)
		}
		if w.known() {
			last = w
		}
		got = append(got, fmt.Sprintf("%s %d attached %v deleting %v guarded %v gone %v", w.Verb, w.Code, w.Attached, w.Deleting, w.Guarded, w.Gone))
	}
	want := []string{
		"POST 201 attached false deleting false guarded false gone false",
		"PATCH 200 attached false deleting false guarded true gone false",
		"PATCH 200 attached true deleting false guarded true gone false",
		"DELETE 200 attached true deleting true guarded true gone false",
		"PATCH -1 attached false deleting false guarded false gone false", // refused by the trouble
		"PATCH 200 attached true deleting true guarded false gone true",
		"PATCH 404 attached false deleting false guarded false gone false",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestTheHolderOfALeaseIsTheProcessThatHasWrittenItsIdentityFirst(t *testing.T) {
	client, p, h := recorded(t)
	leases := client.CoordinationV1().Leases(namespace)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "external-attacher-leader-rec"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("host_1"), LeaseDurationSeconds: ptr.To[int32](3)}}
	made, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	end := p.begin(trouble{kind: APILeases, share: 1})
	if _, err := leases.Update(t.Context(), made, metav1.UpdateOptions{}); err == nil {
		t.Error("the leases are not cut off")
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("more than the leases is cut off: %v", err)
	}
	end()
	made.Spec.HolderIdentity = ptr.To("")
	if _, err := leases.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var known []write
	for _, w := range h.take().writes {
		if w.known() {
			known = append(known, w)
		}
	}
	if len(known) != 2 || known[0].Driver != "rec" || *known[0].Lease != (leaseWrite{Holder: "hub0/7", Duration: 3 * sec}) ||
		*known[1].Lease != (leaseWrite{BasedOn: known[0].Version, Duration: 3 * sec}) {
		t.Errorf("recorded %+v", known)
	}
}

func TestAWatchIsHeldBack(t *testing.T) {
	client, p, _ := recorded(t)
	vas := client.StorageV1().VolumeAttachments()
	w, err := vas.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	lag := p.Lags["volumeattachments"]
	lag.Begin()
	va := testbed.VolumeAttachment{Name: "held-v0-p0.node1", Driver: "d", Node: "node1", PersistentVolume: "held-v0"}.Build()
	if _, err := vas.Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-w.ResultChan():
		t.Errorf("got %v while it is held", e)
	case <-time.After(100 * time.Millisecond):
	}
	lag.End()
	for e := range w.ResultChan() {
		if got, ok := e.Object.(*storagev1.VolumeAttachment); ok && got.Name == va.Name {
			break
		}
	}
	if err := vas.Delete(t.Context(), va.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
