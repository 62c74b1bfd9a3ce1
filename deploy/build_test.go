package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// install is what `kubectl apply -k deploy/` applies.
const install = "."

// No overlay uses these components. The base is with components/pods, components/preflight and components/dns-node-local,
// overlays/proxies with components/secrets and with components/openshift.
const (
	withPods         = "testdata/pods"
	withPreflight    = "testdata/preflight"
	withNodeLocalDNS = "testdata/dns-node-local"
	withSecrets      = "testdata/secrets"
	withOpenShift    = "testdata/openshift"
)

// kustomizations returns what users apply: the folder itself, each overlay, and optional components.
func kustomizations(t *testing.T) []string {
	t.Helper()
	overlays, err := filepath.Glob("overlays/*/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{install, withPods, withPreflight, withNodeLocalDNS, withSecrets, withOpenShift}
	for _, path := range overlays {
		all = append(all, filepath.Dir(path))
	}
	if len(overlays) == 0 {
		t.Fatal("there are no overlays")
	}
	return all
}

// build returns the objects of a kustomization, as kubectl builds it: no file beyond its
// own folder is read.
func build(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("build %s: %v", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, r := range resources.Resources() {
		content, err := r.Map()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects
}

// find returns the one object of a kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return objects[i]
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What no kustomization builds, no test sees.
func TestEveryComponentIsInAKustomization(t *testing.T) {
	var used []byte
	for _, pattern := range []string{"overlays/*/kustomization.yaml", "overlays/*/*/kustomization.yaml", "testdata/*/kustomization.yaml", "testdata/*/*/kustomization.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			used = append(used, readFile(t, file)...)
		}
	}
	components, err := filepath.Glob("components/*")
	if err != nil || len(components) == 0 {
		t.Fatal("there are no components", err)
	}
	for _, component := range components {
		if !regexp.MustCompile(`(?m)^  - (\.\./)+` + component + `( #.*)?$`).Match(used) {
			t.Errorf("no kustomization has %s", component)
		}
	}
}

// relative is the way from one folder to another, as kustomize takes it.
func relative(t *testing.T, from, to string) string {
	t.Helper()
	to, err := filepath.Abs(to)
	if err != nil {
		t.Fatal(err)
	}
	if from, err = filepath.EvalSymlinks(from); err != nil {
		t.Fatal(err)
	}
	way, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return way
}
