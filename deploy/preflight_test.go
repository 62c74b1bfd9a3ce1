package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// preflightJob returns the template of the Job's Pod, and that of the hub beside it.
func preflightJob(t *testing.T) (job, hub corev1.PodTemplateSpec) {
	t.Helper()
	objects := build(t, withPreflight)
	return as[batchv1.Job](t, find(t, objects, "Job", "csi-attach-hub-preflight")).Spec.Template,
		as[appsv1.Deployment](t, find(t, objects, "Deployment", "csi-attach-hub")).Spec.Template
}

// selects reports whether a selector is that of a Pod.
func selects(t *testing.T, s *metav1.LabelSelector, pod corev1.PodTemplateSpec) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(pod.Labels))
}

func TestThePodOfPreflightIsInNetworkPoliciesButNeitherBehindTheServiceNorInTheBudget(t *testing.T) {
	job, hub := preflightJob(t)
	objects := build(t, withPreflight)
	service := metav1.SetAsLabelSelector(as[corev1.Service](t, find(t, objects, "Service", "csi-attach-hub")).Spec.Selector)
	budget := as[policyv1.PodDisruptionBudget](t, find(t, objects, "PodDisruptionBudget", "csi-attach-hub")).Spec.Selector
	for name, selector := range map[string]*metav1.LabelSelector{"Service": service, "PodDisruptionBudget": budget} {
		if selects(t, selector, job) || !selects(t, selector, hub) {
			t.Errorf("the %s selects the Job's Pod, or not that of the hub: %v", name, selector)
		}
	}
	old := as[appsv1.Deployment](t, find(t, build(t, install), "Deployment", "csi-attach-hub")).Spec.Template
	if !selects(t, budget, old) {
		t.Error("the budget does not protect Pods from before the component")
	}
	policies := 0
	for _, o := range objects {
		if o.GetKind() == "NetworkPolicy" {
			policies++
			if policy := as[networkingv1.NetworkPolicy](t, o); !selects(t, &policy.Spec.PodSelector, job) {
				t.Errorf("NetworkPolicy %s is not for the Job's Pod", o.GetName())
			}
		}
	}
	if policies != 2 {
		t.Errorf("%d network policies of the hub, want those for the API server and DNS, and for the proxies", policies)
	}
	driver, _ := rendered(t, hubBinary(t), manifestOf("ebs"), "proxy", "observe")
	for _, rule := range as[networkingv1.NetworkPolicy](t, find(t, driver, "NetworkPolicy", "attach-hub-ebs-csi-aws-com")).Spec.Ingress {
		for _, from := range rule.From {
			if !selects(t, from.PodSelector, job) {
				t.Error("a proxy does not admit the Job's Pod")
			}
		}
	}
}

func TestPreflightRunsAsTheHubDoes(t *testing.T) {
	job, hub := preflightJob(t)
	j, h := job.Spec, hub.Spec
	for _, spec := range []corev1.PodSpec{j, h} {
		slices.SortFunc(spec.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(spec.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
	}
	if j.ServiceAccountName != h.ServiceAccountName || !*j.AutomountServiceAccountToken {
		t.Errorf("the account is %s", j.ServiceAccountName)
	}
	if diff := cmp.Diff(h.SecurityContext, j.SecurityContext); diff != "" {
		t.Errorf("Pod (-hub +job):\n%s", diff)
	}
	if diff := cmp.Diff(h.Containers[0].SecurityContext, j.Containers[0].SecurityContext); diff != "" {
		t.Errorf("container (-hub +job):\n%s", diff)
	}
	if diff := cmp.Diff(h.Containers[0].VolumeMounts, j.Containers[0].VolumeMounts); diff != "" {
		t.Errorf("mounts (-hub +job):\n%s", diff)
	}
	if h.Containers[0].Image != j.Containers[0].Image || argument(t, h.Containers[0].Args, "--config") != argument(t, j.Containers[0].Args, "--config") {
		t.Errorf("image %s, arguments %v", j.Containers[0].Image, j.Containers[0].Args)
	}
	if c := j.Containers[0]; c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Error("no request or no limit of memory")
	}
	// Where proxy-client is not used, the Secret does not exist.
	for _, v := range j.Volumes {
		for _, source := range sources(v) {
			if s := source.Secret; s != nil {
				if s.Optional == nil || !*s.Optional {
					t.Errorf("Secret %s is not optional", s.Name)
				}
				s.Optional = nil
			}
		}
	}
	if diff := cmp.Diff(h.Volumes, j.Volumes); diff != "" {
		t.Errorf("volumes, but for what is optional (-hub +job):\n%s", diff)
	}
}

func sources(v corev1.Volume) []corev1.VolumeProjection {
	if v.Projected == nil {
		return nil
	}
	return v.Projected.Sources
}

// A Pod beyond the level of the namespace would never come into being, and the Job be taken all the same.
func TestThePodOfPreflightIsWithinTheRestrictedLevel(t *testing.T) {
	client, w := warnedClient(t)
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "preflight-",
		Labels: as[corev1.Namespace](t, find(t, build(t, withPreflight), "Namespace", "csi-attach-hub")).Labels}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if level := namespace.Labels["pod-security.kubernetes.io/enforce"]; level != "restricted" {
		t.Errorf("the level is %s", level)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "csi-attach-hub"}}
	if _, err := client.CoreV1().ServiceAccounts(namespace.Name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	job, _ := preflightJob(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "preflight", Namespace: namespace.Name, Labels: job.Labels}, Spec: job.Spec}
	if _, err := client.CoreV1().Pods(namespace.Name).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || w.Len() > 0 {
		t.Errorf("%v, warnings: %s", err, w)
	}
}

// The hub's own rights are enough, and nothing is written.
func TestPreflightNeedsNoMoreRightsThanTheHubAndWritesNothing(t *testing.T) {
	d := deploy(t, "preflight", "before")
	name, endpoint, _ := d.driver("a")
	node := d.prefix + "-node"
	_, va := d.volume("before", name, node)
	d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id-a"}}, va)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: registry.LeaseName(name)}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("csi-attacher-0"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: time.Now().Add(time.Hour)}}}
	if _, err := d.client.CoordinationV1().Leases("storage").Create(d.ctx, lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(d.dir, "drivers.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: attach-hub/v1alpha1
kind: DriverConfig
discovery:
  csiDrivers: {enabled: true, allowedEndpoints: ["unix://%s/*"]}
drivers:
  - {name: %s, endpoint: "%s", mode: observe, lease: {namespace: storage}}
`, d.dir, name, endpoint), 0o600); err != nil {
		t.Fatal(err)
	}
	job, _ := preflightJob(t)
	args := strings.ReplaceAll(strings.Join(job.Spec.Containers[0].Args, "\n"), "/etc/csi-attach-hub/drivers.yaml", config)
	run := func(args ...string) (r struct {
		Result  string
		Hub     []any
		Drivers []any
	}) {
		t.Helper()
		c := exec.CommandContext(d.ctx, d.binary, append(args, "-o", "json", "--kubeconfig", d.recorder.kubeconfig(t, d.token))...)
		c.Env = append(os.Environ(), "POD_NAMESPACE=csi-attach-hub")
		var problems bytes.Buffer
		c.Stderr = &problems
		out, err := c.Output()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%v: %s%s", err, out, problems.String())
		}
		return r
	}
	if r := run(strings.Split(args, "\n")...); r.Result != "ok" || len(r.Drivers) != 1 {
		t.Errorf("got %+v", r)
	}
	used, refused := d.recorder.state()
	if len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, ", "))
	}
	for _, right := range used {
		if verb, _, _ := strings.Cut(right, " "); !slices.Contains([]string{"get", "list", "watch"}, verb) || strings.Contains(right, "secrets") {
			t.Errorf("it did %s", right)
		}
	}
	for _, right := range []string{"list volumeattachments.storage.k8s.io", inWords("get", "coordination.k8s.io", "leases", registry.LeaseName(name), "storage")} {
		if !slices.Contains(used, right) {
			t.Errorf("it did not %s: %v", right, used)
		}
	}
}
