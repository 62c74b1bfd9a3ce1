package deploy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// deployed is a cluster with the chart in it, and a hub that runs as the Pod of
// its Deployment would: with its arguments, and as its ServiceAccount.
type deployed struct {
	t        *testing.T
	ctx      context.Context
	client   kubernetes.Interface // of the administrator
	cluster  *testbed.Cluster
	watcher  *testbed.Watcher[*storagev1.VolumeAttachment]
	recorder *recorder
	applier  applier
	objects  []*unstructured.Unstructured
	prefix   string   // of the names of this test's objects
	secrets  []string // that the hub may read
	token    string
	dir      string
	binary   string // of the hub
	hub      *testbed.Process
}

// deploy applies the manifests with the names of the test's lease and Secrets, which volume makes.
func deploy(t *testing.T, prefix string, volumes ...string) *deployed {
	t.Helper()
	plane := testbed.Shared(t)
	// Before the clock runs: a build may take minutes.
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w := testbed.WorldForTest(t, ctx, testbed.WorldOptions{Plane: plane})
	d := &deployed{t: t, ctx: ctx, client: plane.Clientset(), cluster: w.Cluster, watcher: w.Attachments, prefix: prefix,
		recorder: startRecorder(t), applier: newApplier(ctx, t), dir: w.Dir, binary: binary}
	for _, v := range volumes {
		d.secrets = append(d.secrets, prefix+"-"+v)
	}
	v, secrets := parseValues(t, withProxies), []any{}
	for _, name := range d.secrets {
		secrets = append(secrets, "storage/"+name)
	}
	v["drivers"] = chartValues{prefix + "-a": chartValues{"endpoint": "unix:///csi/a", "lease": chartValues{"namespace": "storage"}, "secrets": secrets}}
	d.objects = release{}.render(t, v)
	d.applier.apply(d.objects...)
	account := find(t, d.objects, "ServiceAccount", "csi-attach-hub")
	d.token = newToken(d, account.GetNamespace(), account.GetName())
	d.waitAllowed()
	d.waitPolicies()
	d.waitFlows()
	return d
}

// featuresFor returns those of a hub with a driver that has its lease in the namespace of the tests.
func featuresFor(driver string) rights.Features {
	return rights.Features{Leases: []rights.Lease{{Namespace: "storage", Name: registry.LeaseName(driver)}},
		ReplicaNamespace: "csi-attach-hub", Discovery: true}
}

// waitAllowed waits until the API server's authorizer has seen the roles.
func (d *deployed) waitAllowed() {
	d.t.Helper()
	client := d.clientWith(d.token)
	needed := rights.Needed(featuresFor(d.prefix + "-a"))
	for _, name := range d.secrets {
		needed = append(needed, rights.Right{Verb: "get", Resource: "secrets", Name: name, Namespace: "storage"})
	}
	poll(d.ctx, d.t, "the rights are granted", func() bool {
		missing, err := rights.Missing(d.ctx, client.AuthorizationV1(), needed)
		if err != nil {
			d.t.Fatal(err)
		}
		return len(missing) == 0
	})
}

// driver serves a driver on a socket, until the test ends.
func (d *deployed) driver(name string) (full, endpoint string, backend *fakecsi.Backend) {
	d.t.Helper()
	full = d.prefix + "-" + name
	driver := testbed.DriverForTest(d.t, full, filepath.Join(d.dir, name))
	return full, driver.Endpoint(), driver.Backend
}

// start starts the hub. Its driver has its lease in the namespace of the
// tests, where a csi-attacher has made it; others are discovered.
func (d *deployed) start(driver, endpoint string) {
	d.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: registry.LeaseName(driver)}}
	if _, err := d.client.CoordinationV1().Leases("storage").Create(d.ctx, lease, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		d.t.Fatal(err)
	}
	d.run(driver, endpoint)
}

// run is start for a driver whose lease is as it is.
func (d *deployed) run(driver, endpoint string) {
	d.t.Helper()
	config := filepath.Join(d.dir, "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		d.t.Fatal(err)
	}
	for name, content := range map[string]string{
		"_defaults": fmt.Sprintf("defaults: {retry: {initial: 50ms, max: 200ms}}\n"+
			"discovery: {csiDrivers: {enabled: true, allowedEndpoints: [\"unix://%s/*\"]}}\ndrivers: []\n", d.dir),
		driver: fmt.Sprintf("drivers: [{name: %s, endpoint: \"%s\", lease: {namespace: storage}}]\n", driver, endpoint),
	} {
		if err := os.WriteFile(filepath.Join(config, name+".yaml"), []byte(testbed.ConfigHead+content), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	container := as[appsv1.Deployment](d.t, find(d.t, d.objects, "Deployment", "csi-attach-hub")).Spec.Template.Spec.Containers[0]
	args := strings.NewReplacer("--config=/etc/csi-attach-hub", "--config="+config,
		"--shutdown-grace", "--http-endpoint=127.0.0.1:0\n--shutdown-grace").Replace(strings.Join(container.Args, "\n"))
	if !slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool {
		return e.Name == "POD_NAMESPACE" && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace"
	}) {
		d.t.Error("the Pod does not say its namespace")
	}
	d.t.Setenv("POD_NAMESPACE", "csi-attach-hub")
	hub, err := testbed.StartHub(d.ctx, testbed.HubOptions{
		Binary: d.binary, Kubeconfig: d.recorder.kubeconfig(d.t, d.token), LogPath: filepath.Join(d.dir, "hub.log"),
		Args: append(strings.Split(args, "\n"), "--leader-election-lease-duration=8s", "--leader-election-renew-deadline=6s", "--leader-election-retry-period=500ms"),
	})
	if err != nil {
		d.t.Fatal(err)
	}
	testbed.KillAtEnd(d.t, hub)
	d.hub = hub
}

func (d *deployed) create(objects ...testbed.Object) {
	d.t.Helper()
	if err := d.cluster.Create(d.ctx, objects...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *deployed) delete(objects ...testbed.Object) {
	d.t.Helper()
	if err := d.cluster.Delete(d.ctx, objects...); err != nil {
		d.t.Fatal(err)
	}
}

// waitFor waits until a VolumeAttachment is as it should be; it is nil when it is gone.
func (d *deployed) waitFor(what, name string, holds func(*storagev1.VolumeAttachment) bool) {
	d.t.Helper()
	if err := d.watcher.WaitFor(d.ctx, name+" "+what, func(all []*storagev1.VolumeAttachment) bool {
		i := slices.IndexFunc(all, func(va *storagev1.VolumeAttachment) bool { return va.Name == name })
		if i < 0 {
			return holds(nil)
		}
		return holds(all[i])
	}); err != nil {
		d.t.Fatal(err)
	}
}

func attached(va *storagev1.VolumeAttachment) bool { return va != nil && va.Status.Attached }
func gone(va *storagev1.VolumeAttachment) bool     { return va == nil }

// volume makes a volume of a driver, with a secret, and returns what attaches it.
func (d *deployed) volume(name, driver, node string) (volume, attachment testbed.Object) {
	d.t.Helper()
	name = d.prefix + "-" + name
	d.create(testbed.Secret{Namespace: "storage", Name: name, Data: map[string]string{"password": "hidden-" + name}})
	pv := testbed.PersistentVolume{Name: name, Driver: driver, Secret: &corev1.SecretReference{Namespace: "storage", Name: name}}
	d.create(pv)
	return pv, testbed.VolumeAttachment{Name: name, Driver: driver, Node: node, PersistentVolume: name}
}

// TestHubNeedsEveryRightThatItIsGivenAndNoOther has a hub do all that needs rights. What
// it used must be what the manifests give, to the last verb: then none can be taken away.
func TestHubNeedsEveryRightThatItIsGivenAndNoOther(t *testing.T) {
	d := deploy(t, "rights", "before", "found")
	name, endpoint, backend := d.driver("a")
	found, foundAt, _ := d.driver("b")
	node := d.prefix + "-node"
	d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id-a", found: "id-b"}}, testbed.Node{Name: node})
	// From before the hub: it is read anew.
	pv, va := d.volume("before", name, node)
	d.create(va)
	d.start(name, endpoint)
	d.waitFor("attached", d.prefix+"-before", attached)
	// Found by its CSIDriver object.
	d.create(testbed.CSIDriver{Name: found, Annotations: map[string]string{"attach-hub/endpoint": foundAt}})
	pvFound, vaFound := d.volume("found", found, node)
	d.create(vaFound)
	d.waitFor("attached", d.prefix+"-found", attached)
	// Neither its volume nor its node is in a cache; and an Event that is told again.
	lost := testbed.VolumeAttachment{Name: d.prefix + "-lost", Driver: name, Node: "nowhere", PersistentVolume: "nothing"}
	d.create(lost)
	d.recorder.waitUsed(d.ctx, t, "get persistentvolumes", "get csinodes.storage.k8s.io",
		"create events in namespace default", "patch events in namespace default")
	d.delete(lost)
	d.waitFor("gone", lost.Name, gone)
	// attachRequired becomes false: whether the volume is in use is asked first.
	d.create(testbed.CSIDriver{Name: name, NoAttach: true})
	d.recorder.waitUsed(d.ctx, t, "get nodes")
	d.delete(testbed.CSIDriver{Name: name})

	d.delete(va, vaFound)
	d.waitFor("gone", d.prefix+"-before", gone)
	d.waitFor("gone", d.prefix+"-found", gone)
	d.delete(pv, pvFound)
	if err := d.hub.Stop(d.ctx, 30*time.Second); err != nil {
		t.Errorf("the hub did not end in order: %v", err)
	}
	if left := backend.Books().Attached; len(left) > 0 {
		t.Errorf("still attached: %v", left)
	}
	// client-go's watches begin with what is there; before, and where a server cannot do
	// that, it is listed.
	t.Setenv("KUBE_FEATURE_WatchListClient", "false")
	d.start(name, endpoint)
	d.recorder.waitUsed(d.ctx, t, "list persistentvolumes", "list volumeattachments.storage.k8s.io", "list csinodes.storage.k8s.io",
		"list csidrivers.storage.k8s.io", inWords("list", "coordination.k8s.io", "leases", registry.LeaseName(name), "storage"),
		"list leases.coordination.k8s.io in namespace csi-attach-hub")
	if err := d.hub.Stop(d.ctx, 30*time.Second); err != nil {
		t.Errorf("the hub did not end in order: %v", err)
	}

	used, refused := d.recorder.state()
	if len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, ", "))
	}
	if diff := cmp.Diff(grantedIn(t, d.objects), used); diff != "" {
		t.Errorf("what is granted, and what was used (-granted +used):\n%s", diff)
	}
	d.checkFlows()
	log := readFile(t, d.hub.LogPath())
	for _, word := range []string{"forbidden", "hidden-"} {
		if i := bytes.Index(log, []byte(word)); i >= 0 {
			t.Errorf("the log has %q: %s", word, log[max(0, i-200):min(len(log), i+200)])
		}
	}
}

func newToken(d *deployed, namespace, account string) string {
	d.t.Helper()
	request, err := d.client.CoreV1().ServiceAccounts(namespace).CreateToken(d.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return request.Status.Token
}

// clientWith returns a client with a token.
func (d *deployed) clientWith(token string) kubernetes.Interface {
	d.t.Helper()
	config := rest.AnonymousClientConfig(testbed.Shared(d.t).RESTConfig())
	config.BearerToken, config.QPS = token, -1
	return newClient(d.t, config)
}

// address waits until the hub serves, and returns the URL.
func (d *deployed) address() (url string) {
	d.t.Helper()
	poll(d.ctx, d.t, "the hub serves HTTP", func() bool {
		lines := bufio.NewScanner(bytes.NewReader(readFile(d.t, d.hub.LogPath())))
		for lines.Scan() {
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "Serving HTTP" {
				url = "http://" + line.Address
			}
		}
		return url != ""
	})
	return url
}
