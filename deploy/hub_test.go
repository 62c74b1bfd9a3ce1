package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// deployed is a cluster with overlays/proxies in it, and a hub that runs as the Pod of
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
	prefix   string // of the names of this test's objects
	token    string
	dir      string
	binary   string // of the hub
	hub      *testbed.Process
}

func deploy(t *testing.T, prefix string) *deployed {
	t.Helper()
	plane := testbed.Shared(t)
	// Before the clock runs: a build may take minutes.
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Race: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w := testbed.WorldForTest(t, ctx, testbed.WorldOptions{Plane: plane})
	d := &deployed{t: t, ctx: ctx, client: plane.Clientset(), cluster: w.Cluster, watcher: w.Attachments, prefix: prefix,
		recorder: startRecorder(t), applier: newApplier(ctx, t), objects: build(t, "overlays/proxies"), dir: w.Dir, binary: binary}
	d.applier.apply(d.objects...)
	account := find(t, d.objects, "ServiceAccount", "csi-attach-hub")
	d.token = newToken(d, account.GetNamespace(), account.GetName())
	d.waitAllowed()
	d.waitFlows()
	return d
}

// granted returns the rights to objects that the manifests give, in the words of
// rights.Right. Those to look at the hub are for others.
func (d *deployed) granted() []string {
	var all []string
	for _, o := range d.objects {
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		for _, r := range as[rbacv1.Role](d.t, withoutAggregation(o)).Rules {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					all = append(all, inWords(verb, r.APIGroups[0], resource, o.GetNamespace()))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// withoutAggregation lets a ClusterRole be read as a Role, which has the same rules.
func withoutAggregation(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "aggregationRule")
	return o
}

func inWords(verb, group, resource, namespace string) string {
	s := verb + " " + resource
	if group != "" {
		s += "." + group
	}
	if namespace != "" {
		s += " in namespace " + namespace
	}
	return s
}

// features are those of the hub of this test.
var features = rights.Features{LeaseNamespaces: []string{"storage"}, ReplicaNamespace: "csi-attach-hub", Discovery: true, Reviews: true}

// waitAllowed waits until the API server's authorizer has seen the roles.
func (d *deployed) waitAllowed() {
	d.t.Helper()
	client := d.clientWith(d.token)
	needed := append(rights.Needed(features), rights.Right{Verb: "get", Resource: "secrets", Namespace: "storage"})
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

// start starts the hub. Its driver has its lease in the namespace that the overlay is
// for; others are discovered.
func (d *deployed) start(driver, endpoint string) {
	d.t.Helper()
	config := filepath.Join(d.dir, "drivers.yaml")
	content := fmt.Sprintf(`apiVersion: attach-hub/v1alpha1
kind: DriverConfig
defaults:
  retry: {initial: 50ms, max: 200ms}
discovery:
  csiDrivers: {enabled: true, allowedEndpoints: ["unix://%s/*"]}
drivers:
  - {name: %s, endpoint: "%s", lease: {namespace: storage}}
`, d.dir, driver, endpoint)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
	container := as[appsv1.Deployment](d.t, find(d.t, d.objects, "Deployment", "csi-attach-hub")).Spec.Template.Spec.Containers[0]
	args := strings.NewReplacer("--config=/etc/csi-attach-hub/drivers.yaml", "--config="+config,
		"--http-endpoint=:8443", "--http-endpoint=:0", "--health-addr=127.0.0.1:8080", "--health-addr=127.0.0.1:0").
		Replace(strings.Join(container.Args, "\n"))
	if !slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool {
		return e.Name == "POD_NAMESPACE" && e.ValueFrom.FieldRef.FieldPath == "metadata.namespace"
	}) {
		d.t.Error("the Pod does not say its namespace")
	}
	d.t.Setenv("POD_NAMESPACE", "csi-attach-hub")
	hub, err := testbed.StartProcess(d.ctx, testbed.ProcessOptions{
		Name: "hub", Path: d.binary, LogPath: filepath.Join(d.dir, "hub.log"),
		Args: append(strings.Split(args, "\n"), "--kubeconfig", d.recorder.kubeconfig(d.t, d.token), "--leader-election-lease-duration=3s",
			"--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"),
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
	d := deploy(t, "rights")
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
	// Who looks, and whether they may, is asked.
	d.look()

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
		"list csidrivers.storage.k8s.io", "list leases.coordination.k8s.io in namespace storage",
		"list leases.coordination.k8s.io in namespace csi-attach-hub")
	if err := d.hub.Stop(d.ctx, 30*time.Second); err != nil {
		t.Errorf("the hub did not end in order: %v", err)
	}

	used, refused := d.recorder.state()
	if len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, ", "))
	}
	if diff := cmp.Diff(d.granted(), used); diff != "" {
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

// The list by which the hub checks itself is the one that the manifests were made by.
func TestManifestsGiveWhatTheHubChecks(t *testing.T) {
	d := &deployed{t: t, objects: build(t, "overlays/proxies")}
	needed := []string{"get secrets in namespace storage"} // not checked: which ones is not known
	for _, r := range rights.Needed(features) {
		needed = append(needed, r.String())
		if _, err := os.Stat("../" + r.Manifest); err != nil {
			t.Errorf("%s: %v", r, err)
		}
	}
	slices.Sort(needed)
	// Right.String has a group behind the subresource, as RBAC has it in its own errors.
	if diff := cmp.Diff(d.granted(), needed); diff != "" {
		t.Errorf("what is granted, and what is checked (-granted +checked):\n%s", diff)
	}
}

// without returns a role without one verb on one resource, and whether it had that.
func without(t *testing.T, role *unstructured.Unstructured, verb, resource string) (left *unstructured.Unstructured, taken bool) {
	t.Helper()
	left = role.DeepCopy()
	rules, _, _ := unstructured.NestedSlice(left.Object, "rules")
	for _, rule := range rules {
		rule := rule.(map[string]any)
		resources, _ := rule["resources"].([]any) // none: a right to look at the hub
		if !slices.Contains(resources, any(resource)) {
			continue
		}
		verbs := rule["verbs"].([]any)
		had := len(verbs)
		rule["verbs"] = slices.DeleteFunc(verbs, func(v any) bool { return v == verb })
		taken = taken || len(rule["verbs"].([]any)) < had
	}
	rules = slices.DeleteFunc(rules, func(rule any) bool { return len(rule.(map[string]any)["verbs"].([]any)) == 0 })
	if err := unstructured.SetNestedSlice(left.Object, rules, "rules"); err != nil {
		t.Fatal(err)
	}
	return left, taken
}

// deny takes one right from a role, and waits until that is effective.
func (d *deployed) deny(r rights.Right) {
	d.t.Helper()
	denied := false
	for _, o := range d.objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" || o.GetNamespace() != r.Namespace {
			continue
		}
		left, taken := without(d.t, o, r.Verb, r.Resource)
		denied = denied || taken
		d.applier.apply(left)
	}
	if !denied {
		d.t.Fatalf("nothing gives the right to %s", r)
	}
	client := d.clientWith(d.token)
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	poll(d.ctx, d.t, "no right to "+r.String(), func() bool {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: subresource, Namespace: r.Namespace}}}
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(d.ctx, review, metav1.CreateOptions{})
		if err != nil {
			d.t.Fatal(err)
		}
		return !review.Status.Allowed
	})
}

func TestVolumesAreNotAttachedWithoutARight(t *testing.T) {
	for i, right := range []rights.Right{
		{Verb: "patch", Group: "storage.k8s.io", Resource: "volumeattachments/status"},
		{Verb: "get", Resource: "secrets", Namespace: "storage"},
		{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: "storage"},
	} {
		t.Run(strings.ReplaceAll(right.String(), "/", "_"), func(t *testing.T) {
			d := deploy(t, fmt.Sprintf("denied-%d", i))
			d.deny(right)
			t.Cleanup(func() { d.applier.ctx = context.Background(); d.applier.apply(d.objects...) })
			name, endpoint, _ := d.driver("a")
			node := d.prefix + "-node"
			d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id"}})
			_, va := d.volume("v", name, node)
			d.create(va)
			d.start(name, endpoint)
			d.recorder.wait(d.ctx, t, "refused: "+right.String(), func(_, refused map[string]bool) bool { return refused[right.String()] })
			d.hub.Kill()
			if got, err := d.client.StorageV1().VolumeAttachments().Get(d.ctx, d.prefix+"-v", metav1.GetOptions{}); err != nil || got.Status.Attached {
				t.Errorf("attached, or not there: %v", err)
			}
			if used, refused := d.recorder.state(); !slices.Equal(refused, []string{right.String()}) {
				t.Errorf("refused: %v, used: %v", refused, used)
			}
		})
	}
}
