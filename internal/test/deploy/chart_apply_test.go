package deploy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Each two switches of the chart are tried in all four ways.
func TestChartIsTakenByARealAPIServerWithAnySwitches(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	a := newApplier(ctx, t)
	a.dryRun = []string{metav1.DryRunAll}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "chart-switches"}}
	if _, err := testbed.Shared(t).Clientset().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for i, v := range pairwise(t) {
		objects := release{namespace: namespace.Name}.render(t, mergeValues(v, parseValues(t, fmt.Sprintf("{fullnameOverride: switches-%d, drivers: {a.example: {endpoint: 'unix:///a', secrets: [storage/a]}}}", i))))
		a.apply(objects...)
	}
}

// Helm itself installs, upgrades and removes the chart, with all objects that it can have.
func TestHelmInstallsUpgradesAndRemovesTheChart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	a := newApplier(ctx, t) // defines the kinds of other projects
	plane, name := testbed.Shared(t), "helm-hub"
	kubeconfig := plane.Kubeconfig()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &name
	config := action.NewConfiguration()
	if err := config.Init(flags, name, "secret"); err != nil {
		t.Fatal(err)
	}
	config.Capabilities = common.DefaultCapabilities.Copy() // the API server of the tests does not know its version
	config.Capabilities.KubeVersion = *kubeVersion(t, "v1.37.0")
	chart, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	// helm makes the namespace.
	v := parseValues(t, everything+"fullnameOverride: helm-hub\nnamespace: {create: false}\n")
	install := action.NewInstall(config)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.WaitStrategy, install.ServerSideApply = name, name, true, kube.HookOnlyStrategy, true
	if _, err := install.RunWithContext(ctx, chart, v); err != nil {
		t.Fatal(err)
	}
	configMaps := plane.Clientset().CoreV1().ConfigMaps(name)
	before, err := configMaps.Get(ctx, "helm-hub-drivers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// By cert-manager, after the installation.
	ca := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "helm-hub-ca"}, Data: map[string][]byte{"tls.crt": []byte("the CA\n")}}
	if _, err := plane.Clientset().CoreV1().Secrets(name).Create(ctx, ca, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bundles := a.dynamic.Resource(schema.GroupVersionResource{Group: "trust.cert-manager.io", Version: "v1alpha1", Resource: "bundles"})
	upgrade := action.NewUpgrade(config)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.ServerSideApply = name, kube.HookOnlyStrategy, "true"
	if _, err := upgrade.RunWithContext(ctx, name, chart, mergeValues(v, at("defaults.workers", 7))); err != nil {
		t.Fatal(err)
	}
	if after, err := configMaps.Get(ctx, before.Name, metav1.GetOptions{}); err != nil || slices.Equal(valuesOf(before), valuesOf(after)) {
		t.Errorf("the upgrade has not changed the drivers: %v", err)
	}
	bundle, err := bundles.Get(ctx, "attach-hub-ca", metav1.GetOptions{}) // the name of the ConfigMap that proxies mount
	if err != nil {
		t.Fatal(err)
	}
	want := "map[sources:[map[inLine:the CA\n]] target:map[configMap:map[key:ca.crt] namespaceSelector:map[]]]" // --client-ca of proxies is ca.crt
	if got := fmt.Sprint(bundle.Object["spec"]); got != want {
		t.Errorf("the Bundle is %s, want %s", got, want)
	}
	uninstall := action.NewUninstall(config)
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run(name); err != nil {
		t.Fatal(err)
	}
	if _, err := bundles.Get(ctx, "attach-hub-ca", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Bundle is left: %v", err)
	}
	for _, o := range (release{name: name, namespace: name}).render(t, v) {
		mapping, err := a.mapper.RESTMapping(o.GroupVersionKind().GroupKind())
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s %s/%s is left: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
}

func valuesOf(m *corev1.ConfigMap) []string {
	var all []string
	for _, text := range m.Data {
		all = append(all, text)
	}
	slices.Sort(all)
	return all
}
