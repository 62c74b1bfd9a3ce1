package deploy_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

// createPod makes a Pod of a workload as it is in the cluster, and returns the Pod as the API server has it, with all
// defaults.
func (a applier) createPod(client kubernetes.Interface, workload *unstructured.Unstructured) (*corev1.Pod, error) {
	kind, namespace := workload.GroupVersionKind(), workload.GetNamespace()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	found, err := a.dynamic.Resource(mapping.Resource).Namespace(namespace).Get(a.ctx, workload.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	content, _, err := unstructured.NestedMap(found.Object, "spec", "template")
	if err != nil {
		return nil, err
	}
	var template corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &template); err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName = workload.GetName() + "-"
	for {
		created, err := client.CoreV1().Pods(namespace).Create(a.ctx, pod, metav1.CreateOptions{})
		switch {
		case err == nil:
			return created, nil
		case a.ctx.Err() != nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PriorityClass"):
			return nil, fmt.Errorf("create a Pod of %s %s: %w", kind.Kind, workload.GetName(), err)
		}
		time.Sleep(20 * time.Millisecond) // the admission learns of a new PriorityClass a moment after it is made
	}
}

func deletePod(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
