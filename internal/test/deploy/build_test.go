package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubectl/pkg/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

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

// as returns an object as its Go type.
func as[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, out, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return out
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// readObjects reads a file of several documents. It fails the test at fields that the object's Go type does not have.
func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(readFile(t, file))))
	defer documents.Close()
	var objects []*unstructured.Unstructured
	for {
		document := make([]byte, 1<<20)
		n, err := documents.Read(document)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		document = document[:n]
		if !bytes.Contains(document, []byte("apiVersion:")) {
			continue // the comment before the first document
		}
		if _, _, err := decoder.Decode(document, nil, nil); err != nil {
			t.Fatalf("%s: document %d: %v", file, len(objects)+1, err)
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatalf("%s: document %d: %v", file, len(objects)+1, err)
		}
		objects = append(objects, o)
	}
}
