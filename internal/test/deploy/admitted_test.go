package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// warnings of the API server, such as those about Pod security.
type warnings struct{ bytes.Buffer }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { fmt.Fprintln(w, text) }

// warnedClient returns a client of the administrator, and what the API server warns it of.
func warnedClient(t *testing.T) (kubernetes.Interface, *warnings) {
	t.Helper()
	config := testbed.Shared(t).RESTConfig()
	w := &warnings{}
	config.WarningHandler = w
	return newClient(t, config), w
}

// A Deployment is taken whatever the admission says of its Pods: a Pod that is refused never comes into being. The API server has its
// default plugins, among them PodSecurity, Priority and ResourceQuota.
func TestPodsOfTheHubAreAdmittedInItsNamespace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	client, w := warnedClient(t)
	for _, values := range installations {
		objects := objectsOf(t, values)
		level := "restricted"
		if values == withHostSockets {
			level = "privileged"
		}
		namespace := as[corev1.Namespace](t, find(t, objects, "Namespace", "csi-attach-hub"))
		if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != level {
			t.Errorf("%s: the level is %s, want %s", values, got, level)
		}
		// A new one: a change of an old one reaches the admission only after a while.
		namespace.ObjectMeta = metav1.ObjectMeta{GenerateName: "level-", Labels: namespace.Labels}
		namespace, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		quota := as[corev1.ResourceQuota](t, find(t, objects, "ResourceQuota", "csi-attach-hub-critical"))
		quota.Namespace = namespace.Name
		if quota, err = client.CoreV1().ResourceQuotas(namespace.Name).Create(ctx, quota, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "hub", Namespace: namespace.Name},
			Spec:       as[appsv1.Deployment](t, find(t, objects, "Deployment", "csi-attach-hub")).Spec.Template.Spec,
		}
		if values == withOpenShift {
			asAdmittedByRestrictedV2(&pod.Spec)
		}
		// Its controller does not run here.
		use := func(pods string) {
			quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}}
			if quota, err = client.CoreV1().ResourceQuotas(namespace.Name).UpdateStatus(ctx, quota, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		create := func(pod *corev1.Pod) error {
			_, err := client.CoreV1().Pods(namespace.Name).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		// The admission sees the quota by a watch.
		use("9")
		var refusal error
		poll(ctx, t, values+": the admission knows the quota", func() bool {
			refusal = create(pod)
			return refusal == nil || !strings.Contains(refusal.Error(), "status unknown for quota")
		})
		if refusal != nil {
			t.Errorf("%s: %v", values, refusal)
			continue
		}
		if level == "restricted" {
			onHost := pod.DeepCopy()
			onHost.Spec.HostPID = true
			if err := create(onHost); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`) {
				t.Errorf("%s: a Pod with the processes of its host is admitted: %v", values, err)
			}
		}
		use("10")
		poll(ctx, t, values+": the quota counts the hub's Pods", func() bool {
			refusal = create(pod)
			return refusal != nil
		})
		if !strings.Contains(refusal.Error(), "exceeded quota: csi-attach-hub-critical") {
			t.Errorf("%s: %v", values, refusal)
		}
		if w.Len() > 0 {
			t.Errorf("%s: warnings: %s", values, w)
			w.Reset()
		}
	}
}
