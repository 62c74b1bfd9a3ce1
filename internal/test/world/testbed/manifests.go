package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// Installation is the file with the manifests of the hub, below the repository.
const Installation = "deploy/install.yaml"

// ApplyInstallation applies the objects of Installation that have one of the kinds. The namespace is applied first.
func (cp *ControlPlane) ApplyInstallation(ctx context.Context, kinds ...string) error {
	return cp.eachOfInstallation(append([]string{"Namespace"}, kinds...), func(client dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := client.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "testbed", Force: true})
		return err
	})
}

// DeleteInstallation deletes the objects of Installation that have one of the kinds. An object that does not exist is no error.
func (cp *ControlPlane) DeleteInstallation(ctx context.Context, kinds ...string) error {
	return cp.eachOfInstallation(kinds, func(client dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		if err := client.Delete(ctx, o.GetName(), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

// eachOfInstallation acts on the objects of a kind, kind by kind.
func (cp *ControlPlane) eachOfInstallation(kinds []string, act func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	if err != nil {
		return fmt.Errorf("make client of the control plane: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(cp.client.Discovery()))
	objects, err := readManifest(filepath.Join(root, Installation))
	if err != nil {
		return err
	}
	for _, name := range kinds {
		for _, o := range objects {
			kind := o.GroupVersionKind()
			if kind.Kind != name {
				continue
			}
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				return fmt.Errorf("%s: %w", Installation, err)
			}
			var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				resource = client.Resource(mapping.Resource).Namespace(o.GetNamespace())
			}
			if err := act(resource, o); err != nil {
				return fmt.Errorf("%s: %s %s: %w", Installation, o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

// readManifest returns the objects of a file.
func readManifest(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer file.Close()
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", path, err)
		}
		if len(o.Object) > 0 { // a document of comments has none
			objects = append(objects, o)
		}
	}
}
