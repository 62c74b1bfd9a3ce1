package deploy_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Each two switches of the chart are tried in all four ways, in a namespace that the kustomizations do not have.
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
		objects := release{namespace: namespace.Name}.render(t, mergeValues(v, parseValues(t, fmt.Sprintf("{fullnameOverride: switches-%d, secrets: {storage: [a]}}", i))))
		a.apply(objects...)
	}
}

func TestChartIsTakenByARealAPIServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	a := newApplier(ctx, t)
	noJob := at("preflight.job.enabled", false) // it cannot be changed; the test above applies it
	for _, same := range alike {
		v := mergeValues(readValues(t, same.files...), same.more)
		a.apply(release{}.render(t, mergeValues(v, noJob))...)
	}
	a.apply(release{}.render(t, mergeValues(parseValues(t, everything), noJob))...)
}

// The hub starts at the level of the namespace that the chart makes, or that its notes ask for.
func TestChartStaysWithinThePodSecurityLevelOfItsNamespace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	client, w := warnedClient(t)
	for i, v := range pairwise(t) {
		v = mergeValues(v, chartValues{"namespace": chartValues{"create": true}})
		objects := release{}.render(t, v)
		labels := find(t, objects, "Namespace", "csi-attach-hub").GetLabels()
		namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "level-", Labels: labels}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		template := as[appsv1.Deployment](t, find(t, objects, "Deployment", "csi-attach-hub")).Spec.Template
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "hub", Namespace: namespace.Name}, Spec: template.Spec}
		if _, err := client.CoreV1().Pods(namespace.Name).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || w.Len() > 0 {
			t.Errorf("set %d: %v, warnings: %s", i, err, w)
			w.Reset()
		}
	}
}
