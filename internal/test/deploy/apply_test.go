package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// TestMain runs the tests in the folder of what is deployed, whose files they name as the documents there do.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../../deploy"); err != nil {
		panic(err)
	}
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// testTimeout is when a test gives up to wait for what it wants to see.
const testTimeout = 10 * time.Minute

// foreign are the kinds of other projects that deploy/ uses.
var foreign = []schema.GroupVersionKind{
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"},
	{Group: "cert-manager.io", Version: "v1", Kind: "Issuer"},
	{Group: "trust.cert-manager.io", Version: "v1alpha1", Kind: "Bundle"},
}

// applier applies objects as kubectl does, with unknown fields being errors.
type applier struct {
	t       *testing.T
	ctx     context.Context
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	dryRun  []string
}

func newApplier(ctx context.Context, t *testing.T) applier {
	t.Helper()
	plane := testbed.Shared(t)
	client, err := dynamic.NewForConfig(plane.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(plane.Clientset().Discovery()))
	a := applier{t: t, ctx: ctx, dynamic: client, mapper: mapper}
	for _, kind := range foreign {
		a.define(kind)
	}
	// Where the values of tests have a driver.
	storage := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "storage"}}
	if _, err := plane.Clientset().CoreV1().Namespaces().Create(ctx, storage, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return a
}

// define makes a kind known that takes anything, and waits until it is served.
func (a applier) define(kind schema.GroupVersionKind) {
	a.t.Helper()
	plural, scope := strings.ToLower(kind.Kind)+"s", "Namespaced"
	if kind.Kind == "Bundle" {
		scope = "Cluster"
	}
	a.apply(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": plural + "." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group, "scope": scope,
			"names": map[string]any{"kind": kind.Kind, "plural": plural},
			"versions": []any{map[string]any{
				"name": kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}})
	resource := a.dynamic.Resource(kind.GroupVersion().WithResource(plural))
	poll(a.ctx, a.t, kind.Kind+" objects are served", func() bool {
		_, err := resource.List(a.ctx, metav1.ListOptions{Limit: 1})
		return err == nil
	})
	a.mapper.Reset()
}

// poll asks until it holds: for what cannot be watched.
func poll(ctx context.Context, t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

// apply applies objects, namespaces first.
func (a applier) apply(objects ...*unstructured.Unstructured) {
	a.t.Helper()
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(x, y *unstructured.Unstructured) int { return isNamespace(y) - isNamespace(x) })
	for _, o := range objects {
		if err := a.applyOne(o); err != nil {
			a.t.Errorf("apply %s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
	if a.t.Failed() {
		a.t.FailNow()
	}
}

func isNamespace(o *unstructured.Unstructured) int {
	if o.GetKind() == "Namespace" {
		return 1
	}
	return 0
}

func (a applier) applyOne(o *unstructured.Unstructured) error {
	kind := o.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = a.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.GetNamespace() == "" {
			return errors.New("it has no namespace")
		}
		resource = a.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	body, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	force := true
	_, err = resource.Patch(a.ctx, o.GetName(), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: "deploy", Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: a.dryRun})
	return err
}

func newClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
