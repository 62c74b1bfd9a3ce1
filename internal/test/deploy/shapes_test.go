package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// driverManifests are manifests in the shape of those of real drivers.
func driverManifests(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../internal/adopt/testdata/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no manifests of drivers", err)
	}
	return files
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

// What adopt is tested with must be what a cluster can have.
func TestManifestsInTheShapeOfRealDriversAreTakenByARealAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	a := newApplier(ctx, t)
	a.dryRun = []string{metav1.DryRunAll}
	namespaces := testbed.Shared(t).Clientset().CoreV1().Namespaces()
	for _, file := range driverManifests(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			a := a
			a.t = t
			objects := readObjects(t, file)
			attachers := 0
			for _, o := range objects {
				if name := o.GetNamespace(); name != "" {
					namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
					if _, err := namespaces.Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
						t.Fatal(err)
					}
				}
				attachers += countAttachers(t, o)
			}
			if attachers == 0 {
				t.Error("no container runs csi-attacher")
			}
			a.apply(objects...)
		})
	}
}

// countAttachers counts the containers of a Deployment, StatefulSet or DaemonSet that run csi-attacher.
func countAttachers(t *testing.T, o *unstructured.Unstructured) int {
	t.Helper()
	template, found, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return 0
	}
	var pod corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &pod); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range pod.Spec.Containers {
		if strings.Contains(c.Image, "attacher") {
			n++
		}
	}
	return n
}
