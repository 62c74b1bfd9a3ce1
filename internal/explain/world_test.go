package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	driverName = "csi.example.com"
	hubSpace   = "storage"
	identity   = "hub-0_abc"
	replica    = "Pod storage/hub-0"
)

var leaseName = registry.LeaseName(driverName)

// world is a cluster with one volume that a Pod wants on node-1, and a hub. What is nil is
// not there.
type world struct {
	claim     *corev1.PersistentVolumeClaim
	pv        *corev1.PersistentVolume
	va        *storagev1.VolumeAttachment
	pod       *corev1.Pod
	node      *corev1.Node
	csiNode   *storagev1.CSINode
	csiDriver *storagev1.CSIDriver
	lease     *coordinationv1.Lease
	more      []metav1.Object

	// forbidden are "verb resource" or "resource".
	forbidden []string

	hubErr    error              // the hub cannot be asked
	served    *hubclient.Driver  // nil: the hub does not serve the driver
	seen      *status.Attachment // what the hub knows about csi-1
	seenErr   error
	checksErr error               // the hub does not say the checklist
	rows      []status.Attachment // what the hub lists

	config   status.Config  // of the hub
	unserved map[string]int // VolumeAttachments of drivers that the hub does not serve
	access   []string       // flags of the command
}

func ago(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

func agoPointer(d time.Duration) *metav1.Time { t := ago(d); return &t }

// newWorld returns a world in which the VolumeAttachment csi-1 was made 40 s ago and is not
// attached, with all else in order.
func newWorld() *world {
	name := func(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: n} }
	named := func(n string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: n} }
	w := &world{
		claim: &corev1.PersistentVolumeClaim{ObjectMeta: named("data"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
		pv: &corev1.PersistentVolume{ObjectMeta: name("pv-1"), Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "claim-uid"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "vol-1"}},
		}},
		va: attachmentOf("csi-1", "pv-1", "node-1"),
		pod: &corev1.Pod{ObjectMeta: named("web"), Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}},
		node:      &corev1.Node{ObjectMeta: name("node-1")},
		csiNode:   &storagev1.CSINode{ObjectMeta: name("node-1"), Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: "id-1"}}}},
		csiDriver: &storagev1.CSIDriver{ObjectMeta: name(driverName)},
		lease:     leaseOf(hubSpace, identity, 2*time.Second),
		served: &hubclient.Driver{Replica: replica, Leader: identity, Driver: status.Driver{
			Name: driverName, State: "Ready", Up: true, Mode: "active", Endpoint: "unix:///csi/x.sock", Since: time.Now().Add(-time.Hour), Workers: 20,
			Lease: status.Lease{Name: leaseName, Namespace: hubSpace, Holder: identity, Mine: true},
		}},
		seen: &status.Attachment{Name: "csi-1", Driver: driverName, State: status.Waiting, Operation: status.Attach},
	}
	w.claim.UID = "claim-uid"
	w.node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	return w
}

func attachmentOf(name, pv, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: ago(40 * time.Second), Finalizers: []string{attach.Finalizer(driverName)},
			Annotations: map[string]string{attach.AnnotationNodeID: "id-1", attach.AnnotationVolumeHandle: "vol-1"}},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
}

func leaseOf(namespace, holder string, renewedBefore time.Duration) *coordinationv1.Lease {
	lasts, renewed := int32(15), metav1.NewMicroTime(time.Now().Add(-renewedBefore))
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, AcquireTime: &renewed, RenewTime: &renewed}}
}

// kinds are the resources of the API by type, each with its path.
var kinds = map[reflect.Type]struct{ root, resource string }{
	reflect.TypeFor[*corev1.PersistentVolumeClaim](): {"/api/v1", "persistentvolumeclaims"},
	reflect.TypeFor[*corev1.PersistentVolume]():      {"/api/v1", "persistentvolumes"},
	reflect.TypeFor[*corev1.Pod]():                   {"/api/v1", "pods"},
	reflect.TypeFor[*corev1.Node]():                  {"/api/v1", "nodes"},
	reflect.TypeFor[*storagev1.VolumeAttachment]():   {"/apis/storage.k8s.io/v1", "volumeattachments"},
	reflect.TypeFor[*storagev1.CSINode]():            {"/apis/storage.k8s.io/v1", "csinodes"},
	reflect.TypeFor[*storagev1.CSIDriver]():          {"/apis/storage.k8s.io/v1", "csidrivers"},
	reflect.TypeFor[*storagev1.StorageClass]():       {"/apis/storage.k8s.io/v1", "storageclasses"},
	reflect.TypeFor[*coordinationv1.Lease]():         {"/apis/coordination.k8s.io/v1", "leases"},
}

// objects returns all that is there, by the path at which it is read.
func (w *world) objects() map[string]metav1.Object {
	all := map[string]metav1.Object{}
	for _, o := range append([]metav1.Object{w.claim, w.pv, w.va, w.pod, w.node, w.csiNode, w.csiDriver, w.lease}, w.more...) {
		if reflect.ValueOf(o).IsNil() {
			continue
		}
		at := kinds[reflect.TypeOf(o)]
		path := at.root + "/"
		if o.GetNamespace() != "" {
			path += "namespaces/" + o.GetNamespace() + "/"
		}
		all[path+at.resource+"/"+o.GetName()] = o
	}
	return all
}

// exists says whether there is an object that a Finding names: "Kind name" or "Kind namespace/name".
func (w *world) exists(object string) bool {
	for _, o := range w.objects() {
		name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
		if object == reflect.TypeOf(o).Elem().Name()+" "+name {
			return true
		}
	}
	return false
}

// ServeHTTP is as much of the Kubernetes API as is read.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	resource, path, list := "", r.URL.Path, false
	for _, k := range kinds {
		if _, below, found := strings.Cut(path+"/", "/"+k.resource+"/"); found && strings.HasPrefix(path, k.root+"/") {
			resource, list = k.resource, below == ""
		}
	}
	verb := "get"
	if list {
		verb = "list"
	}
	answer := func(code int, value any) {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(code)
		_ = json.NewEncoder(out).Encode(value)
	}
	refuse := func(code int, reason metav1.StatusReason, message string) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: message})
	}
	switch {
	case r.Method != http.MethodGet || resource == "":
		refuse(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method+" "+r.URL.String()+" is not to be asked for")
	case slices.Contains(w.forbidden, resource) || slices.Contains(w.forbidden, verb+" "+resource):
		refuse(http.StatusForbidden, metav1.StatusReasonForbidden, resource+" is forbidden: cannot "+verb)
	case list:
		answer(http.StatusOK, map[string]any{"metadata": map[string]string{}, "items": w.listed(r)})
	case w.objects()[path] == nil:
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound, path+" not found")
	default:
		answer(http.StatusOK, w.objects()[path])
	}
}

// listed returns what a request for a list asks for, by name.
func (w *world) listed(r *http.Request) []metav1.Object {
	root, rest, _ := strings.Cut(r.URL.Path, "/v1/")
	items := []metav1.Object{}
	for path, o := range w.objects() {
		ofAll := strings.HasPrefix(path, root+"/v1/") && strings.HasSuffix(path, "/"+rest+"/"+o.GetName())
		selected := r.URL.Query().Get("fieldSelector")
		if ofAll && (selected == "" || selected == "metadata.name="+o.GetName()) {
			items = append(items, o)
		}
	}
	slices.SortFunc(items, func(a, b metav1.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return items
}

// View is what the hub says.
func (w *world) View(context.Context) hubclient.View {
	v := hubclient.View{Unserved: w.unserved, Replicas: []hubclient.Replica{{Replica: replica, Overview: status.Overview{Identity: identity,
		Replicas: []string{identity, "hub-1_def"}, Config: w.config}}}}
	if w.served != nil {
		d := *w.served
		if d.Health.State == "" { // the hub would send it
			d.Health = status.HealthOfDriver(d.Driver, v.Members(), time.Now())
		}
		v.Drivers = []hubclient.Driver{d}
	}
	return v
}

// Volumes is what the hub lists.
func (w *world) Volumes(_ context.Context, _ hubclient.View, f status.AttachmentFilter, take func(status.Attachment)) error {
	if w.seenErr != nil {
		return w.seenErr
	}
	if f.Name != "" { // the VolumeAttachment of the question
		for _, a := range append(slices.Clone(w.rows), *orNone(w.seen)) {
			if a.Name == f.Name {
				take(a)
			}
		}
		return nil
	}
	for _, a := range append([]status.Attachment{}, w.rows...) {
		if f.Match(a) && (len(f.Health) == 0 || slices.Contains(f.Health, a.Health.State)) {
			take(a)
		}
	}
	return nil
}

func orNone(a *status.Attachment) *status.Attachment {
	if a == nil {
		return new(status.Attachment)
	}
	return a
}

// Driver is what the hub says about the driver alone.
func (w *world) Driver(context.Context, string, string) (*status.Driver, error) {
	return &w.served.Driver, w.checksErr
}

// asked answers a question as the command does.
func (w *world) asked(t *testing.T, question string) (explain.Report, error) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://kube", QPS: -1, Transport: w})
	if err != nil {
		t.Fatal(err)
	}
	q, err := explain.ParseQuestion(question, "default")
	if err != nil {
		t.Fatal(err)
	}
	sources := explain.Sources{Kube: kube, Namespace: hubSpace, Hub: w, Access: w.access}
	if w.hubErr != nil {
		sources.Hub, sources.HubErr = nil, w.hubErr
	}
	return explain.Explain(t.Context(), q, sources)
}

// RoundTrip answers without a network.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	return out.Result(), nil
}

var errNoHub = errors.New("connection refused")

var update = flag.Bool("update", false, "write the golden files")

// golden compares texts for people with testdata/name.golden. With -update it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, run with -update if the new texts are right (-want +got):\n%s", file, diff)
	}
}
