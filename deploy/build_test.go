package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// install is what `kubectl apply -k deploy/` applies.
const install = "."

// withPods is the base with components/pods, withPreflight with components/preflight, and withSecrets is overlays/proxies
// with components/secrets: no overlay uses these components.
const (
	withPods      = "testdata/pods"
	withPreflight = "testdata/preflight"
	withSecrets   = "testdata/secrets"
)

// kustomizations returns what users apply: the folder itself, each overlay, and optional components.
func kustomizations(t *testing.T) []string {
	t.Helper()
	overlays, err := filepath.Glob("overlays/*/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{install, withPods, withPreflight, withSecrets}
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
