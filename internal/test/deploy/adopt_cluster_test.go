package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// adopters is a cluster in which the drivers of several manifests are adopted, by one hub if there is one.
type adopters struct {
	t       *testing.T
	ctx     context.Context
	kubelet *kubelet
	cluster *testbed.Cluster
	watcher *testbed.Watcher[*storagev1.VolumeAttachment]
	applier applier
	kubectl []string // the environment of a command that calls kubectl
	hub     *runningPod
	levels  []string   // namespaces, the one with the strictest level of Pod security first
	mu      sync.Mutex // one at a time makes the hub's volumes anew
}

func newAdopters(t *testing.T) *adopters {
	t.Helper()
	k := newKubelet(t)                                             // before the clock runs: a build may take minutes
	ctx, cancel := context.WithTimeout(t.Context(), 3*testTimeout) // all rows at once
	t.Cleanup(cancel)
	w := testbed.WorldForTest(t, ctx, testbed.WorldOptions{Plane: k.plane})
	a := &adopters{t: t, ctx: ctx, kubelet: k, cluster: w.Cluster, watcher: w.Attachments, applier: newApplier(ctx, t)}
	var err error
	if a.kubectl, err = k.plane.LinkKubectl(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	startCertManager(ctx, t, k.client, a.applier.dynamic)
	for _, level := range []string{"restricted", "baseline", "privileged"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: level + "-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": level}}}
		created, err := k.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a.levels = append(a.levels, created.Name)
	}
	return a
}

// adopt runs the command on a manifest, and returns the folder that it wrote.
func (a *adopters) adopt(row adoptRow) (folder string, err error) {
	folder = filepath.Join(a.kubelet.dir, "adopt-"+row.name())
	image := "registry.example.com/csi-attach-proxy:v1"
	if slices.Contains(row.flags, dropIn) {
		image = "registry.example.com/csi-attach-hub:v1"
	}
	args := append([]string{"adopt", manifestOf(row.manifest), "--image=" + image, "--output=kustomize=" + folder}, row.flags...)
	if out, err := exec.CommandContext(a.ctx, a.kubelet.hub, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return folder, nil
}

func manifestOf(name string) string { return "../internal/adopt/testdata/manifests/" + name + ".yaml" }

// startHub applies the hub with its rights for the drivers of the folders that adopt has written, and starts it without a
// driver.
func (a *adopters) startHub(folders ...string) {
	a.t.Helper()
	drivers := map[string]any{}
	for _, folder := range folders {
		files, _ := filepath.Glob(filepath.Join(folder, "hub", "*.yaml")) // none: its row fails by itself
		for _, file := range files {
			var config struct{ Drivers []map[string]any }
			if err := yaml.Unmarshal(readFile(a.t, file), &config); err != nil {
				a.t.Fatal(err)
			}
			name := config.Drivers[0]["name"].(string)
			delete(config.Drivers[0], "name")
			drivers[name] = config.Drivers[0]
		}
	}
	values, err := yaml.Marshal(map[string]any{"drivers": drivers, "proxies": map[string]any{"enabled": true}})
	if err != nil {
		a.t.Fatal(err)
	}
	objects := objectsOf(a.t, ofInstallYAML+string(values))
	config := find(a.t, objects, "ConfigMap", "csi-attach-hub-drivers")
	for name := range drivers {
		unstructured.RemoveNestedField(config.Object, "data", name+".yaml")
	}
	a.makeNamespaces(objects)
	a.applier.apply(objects...)
	for name, entry := range drivers {
		lease := entry.(map[string]any)["lease"].(map[string]any)["namespace"].(string)
		if lease == "" {
			continue
		}
		testbed.WaitAllowed(a.t, a.kubelet.client, authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:csi-attach-hub:csi-attach-hub",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: registry.LeaseName(name), Namespace: lease}})
	}
	poll(a.ctx, a.t, "the hub has a certificate", func() bool {
		_, err := a.kubelet.client.CoreV1().Secrets("csi-attach-hub").Get(a.ctx, "csi-attach-hub-client-tls", metav1.GetOptions{})
		return err == nil
	})
	pod, err := a.applier.createPod(a.kubelet.client, find(a.t, objects, "Deployment", "csi-attach-hub"))
	if err != nil {
		a.t.Fatal(err)
	}
	a.hub, err = a.kubelet.start(a.ctx, pod, nil)
	a.t.Cleanup(func() { a.endHub() })
	if err != nil {
		a.t.Fatal(err)
	}
	poll(a.ctx, a.t, "the hub answers", func() bool {
		response, err := http.Get(a.api("overview"))
		if err == nil {
			response.Body.Close()
		}
		return err == nil
	})
}

// makeNamespaces makes the namespaces of objects.
func (a *adopters) makeNamespaces(objects []*unstructured.Unstructured) {
	a.t.Helper()
	for _, o := range objects {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}}
		if _, err := a.kubelet.client.CoreV1().Namespaces().Create(a.ctx, namespace, metav1.CreateOptions{}); o.GetNamespace() != "" && err != nil && !apierrors.IsAlreadyExists(err) {
			a.t.Fatal(err)
		}
	}
}

func (a *adopters) api(path string) string {
	return fmt.Sprintf("http://%s:8080/api/v1/%s", a.hub.ip, path)
}

// endHub stops the hub, which must have had all rights that it needed.
func (a *adopters) endHub() {
	a.t.Helper()
	logs := a.hub.logs()
	if err := a.hub.stop(context.Background()); err != nil {
		a.t.Errorf("the hub did not end in order: %v", err)
	}
	if strings.Contains(logs, "forbidden") {
		a.t.Error("the API server has refused requests of the hub")
	}
	if a.t.Failed() {
		a.t.Log(logs)
	}
}

// setEntry writes a driver's file into the hub's volume, with the folders of its mounts, or removes it, and lets the hub read it.
func (a *adopters) setEntry(driver string, entry map[string]any) {
	file := filepath.Join(a.hub.folders["drivers"], driver+".yaml")
	content, err := yaml.Marshal(map[string]any{"apiVersion": "attach-hub/v1alpha1", "kind": "DriverConfig", "drivers": []any{entry}})
	switch {
	case err != nil:
	case entry == nil:
		err = os.Remove(file)
	default:
		text := strings.Join(a.hub.local(a.hub.pod.Spec.Containers[0], strings.Split(string(content), "\n")), "\n")
		err = a.hub.writeFile(file, []byte(text), 0o644)
	}
	if err != nil {
		a.t.Error(err)
	}
	if err := a.hub.running["hub"].Signal(syscall.SIGHUP); err != nil {
		a.t.Error(err)
	}
}

// askDriver asks a hub for a driver's status.
func askDriver(url string) (d status.Driver, ok bool) {
	response, err := http.Get(url)
	if err != nil {
		return d, false
	}
	defer response.Body.Close()
	ok = response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(&d) == nil
	return d, ok
}

// driver asks the hub for a driver's status.
func (s *handover) driver(name string) (status.Driver, bool) {
	return askDriver(s.api("drivers/" + name))
}

// waitDriver blocks until the hub shows a driver as it should be.
func (s *handover) waitDriver(name, what string, holds func(status.Driver) bool) {
	s.t.Helper()
	var d status.Driver
	var ok bool
	ctx, cancel := context.WithTimeout(s.ctx, stepTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for d, ok = s.driver(name); !ok || !holds(d); d, ok = s.driver(name) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			var text bytes.Buffer
			_ = json.Indent(&text, mustJSON(d), "", " ")
			s.t.Fatalf("%s: the hub never showed this: %s; it shows %s", name, what, text.String())
		}
	}
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
