package torture

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// recorded returns a client behind a proxy as hubs have it, and the history of its writes.
func recorded(t *testing.T) (kubernetes.Interface, *proxy, *history) {
	t.Parallel()
	plane := testbed.Shared(t)
	h := newHistory()
	path := testbed.ShortTempDir(t) + "/kubeconfig"
	p, err := newProxy(plane, path, "hub0", h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.process.Store(new("hub0/7"))
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.Timeout, config.QPS = time.Minute, -1
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfigOrDie(config), p, h
}

func TestTheWritesOfAnAttachmentAreRecordedWithTheirOutcome(t *testing.T) {
	client, p, h := recorded(t)
	vas := client.StorageV1().VolumeAttachments()
	va := testbed.VolumeAttachment{Name: "d3-v0-p0.node1", Driver: "chaos-d3", Node: "node1", PersistentVolume: "d3-v0"}.Build()
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
	must(patch(fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, attach.Finalizer("chaos-d3"))))
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
	for _, w := range h.record().writes {
		if w.By != "hub0" || w.place != (place{Driver: "chaos-d3", Volume: "d3-v0", Node: "id-of-node1"}) || !strings.HasPrefix(w.Object, "volumeattachments/d3-v0-p0.node1") || w.Until < w.At {
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
	for _, w := range h.record().writes {
		if w.known() {
			known = append(known, w)
		}
	}
	if len(known) != 2 || known[0].Driver != "rec" || *known[0].Lease != (leaseWrite{Holder: "hub0/7", Duration: 3 * sec}) ||
		*known[1].Lease != (leaseWrite{BasedOn: known[0].Version, Duration: 3 * sec}) {
		t.Errorf("recorded %+v", known)
	}
}

func TestAProxyMakesTheTroubleThatItIsToldTo(t *testing.T) {
	client, p, _ := recorded(t)
	secrets := client.CoreV1().Secrets(namespace)
	secret := testbed.Secret{Namespace: namespace, Name: "proxied"}.Build()
	create := func() error {
		_, err := secrets.Create(t.Context(), secret.DeepCopy(), metav1.CreateOptions{})
		return err
	}
	// tried says whether the secret is there all the same, and takes it away.
	tried := func() bool { return secrets.Delete(t.Context(), secret.Name, metav1.DeleteOptions{}) == nil }
	reached, ok := false, func(err error) bool { return err == nil }
	lost := func(err error) bool { return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown }
	for _, c := range []struct {
		trouble
		is   func(error) bool
		done bool
	}{
		{trouble{}, ok, true},
		{trouble{kind: APIError, share: 1}, func(err error) bool {
			return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
		}, false},
		{trouble{kind: APIAnswerLost, share: 1}, lost, true},
	} {
		end := p.begin(c.trouble)
		if err := create(); !c.is(err) {
			t.Errorf("%q: got %v", c.kind, err)
		}
		end()
		if done := tried(); done != c.done {
			t.Errorf("%q: written is %v, want %v", c.kind, done, c.done)
		}
	}
	for _, lost := range []bool{false, true} {
		ctx, kill := context.WithCancel(t.Context())
		p.begin(trouble{kind: Crashes, lost: lost, is: func(step string) bool { return step == "post secrets" }, reached: func() { reached = true; kill() }})
		_, err := secrets.Create(ctx, secret.DeepCopy(), metav1.CreateOptions{})
		if done := tried(); err == nil || !reached || done != lost {
			t.Errorf("crash, lost %v: reached %v, got %v, written is %v", lost, reached, err, done)
		}
	}
	silence := p.begin(trouble{kind: APISilent, share: 1})
	answered := make(chan error, 1)
	go func() { answered <- create() }()
	select {
	case err := <-answered:
		t.Errorf("in silence: got %v", err)
		answered <- err
	case <-time.After(100 * ms):
	}
	silence()
	if err, done := <-answered, tried(); ok(err) != done { // it may have arrived only now
		t.Errorf("a request in silence: got %v, written is %v", err, done)
	}
	if err := create(); err != nil || !tried() {
		t.Errorf("after the silence: %v", err)
	}
}

// A process may be paused after a write has passed its fence, and sends it when it goes on. What comes later passes the fence
// later.
func TestAWriteRightAfterAPauseCountsFromItsBegin(t *testing.T) {
	resumed := time.Now()
	p := &proxy{paused: resumed.Add(-time.Minute), resumed: resumed}
	if at := resumed.Add(afterPause / 2); !p.left(at).Equal(p.paused) {
		t.Errorf("a write right after the pause counts from %v", p.left(at))
	}
	if at := resumed.Add(afterPause); !p.left(at).Equal(at) {
		t.Errorf("a later write counts from %v", p.left(at))
	}
}
