package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// liveScene is a controller in a namespace of its own, of a driver whose name only a Lease tells.
type liveScene struct {
	t         *testing.T
	plane     *testbed.ControlPlane
	kube      kubernetes.Interface
	namespace string
	driver    string
}

func newLiveScene(t *testing.T, name string) *liveScene {
	s := &liveScene{t: t, plane: testbed.Shared(t), namespace: "adopt-" + name, driver: "live-" + name + ".example.com"}
	s.kube = s.plane.Clientset()
	ctx := t.Context()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: s.namespace} }
	_, err := s.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	s.must(err)
	labels := map[string]string{"app": "controller"}
	sockets := []corev1.VolumeMount{{Name: "sockets", MountPath: "/csi"}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "sockets", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		Containers: []corev1.Container{{Name: "driver", Image: "driver:v1", VolumeMounts: sockets},
			{Name: "csi-attacher", Image: "csi-attacher:v4", Args: []string{"--csi-address=/csi/csi.sock", "--leader-election"}, VolumeMounts: sockets}}}}
	deployment := &appsv1.Deployment{ObjectMeta: meta("controller"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	deployment.Annotations = map[string]string{"deployment.kubernetes.io/revision": "7", "kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}
	_, err = s.kube.AppsV1().Deployments(s.namespace).Create(ctx, deployment, metav1.CreateOptions{})
	s.must(err)
	pod := &corev1.Pod{ObjectMeta: meta("controller-1"), Spec: template.Spec}
	pod.Labels = labels
	_, err = s.kube.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{})
	s.must(err)
	for lease, holder := range map[string]string{"external-attacher-leader-" + strings.ReplaceAll(s.driver, ".", "-"): "controller-1", "external-attacher-leader-other-example-com": "other-1"} {
		_, err = s.kube.CoordinationV1().Leases(s.namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: meta(lease), Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}, metav1.CreateOptions{})
		s.must(err)
	}
	_, err = s.kube.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: s.driver}}, metav1.CreateOptions{})
	s.must(err)
	t.Cleanup(func() {
		_ = s.kube.StorageV1().CSIDrivers().Delete(context.WithoutCancel(t.Context()), s.driver, metav1.DeleteOptions{})
	})
	return s
}

func (s *liveScene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// volume makes a PersistentVolume that names a Secret for attaching.
func (s *liveScene) volume(name, secret string) {
	s.t.Helper()
	_, err := s.kube.CoreV1().PersistentVolumes().Create(s.t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: s.driver, VolumeHandle: name,
			ControllerPublishSecretRef: &corev1.SecretReference{Name: secret, Namespace: "keys"}}}}}, metav1.CreateOptions{})
	s.must(err)
}

// plans runs the decisions of the command for the controller.
func (s *liveScene) plans(kubeconfig string) (plans []adopt.Plan, objects []adopt.Object, warnings string) {
	s.t.Helper()
	c := newAdoptCommand()
	c.SetContext(s.t.Context())
	var errOut bytes.Buffer
	c.SetErr(&errOut)
	s.must(c.Flags().Set("namespace", s.namespace))
	live := adoptLive{client: clientFlags{kubeconfig: kubeconfig}}
	_, names := splitInputs([]string{"deploy/controller"})
	objects, err := live.read(c, names)
	s.must(err)
	attachers, err := adopt.Find(objects, s.namespace, sidecarFlags)
	s.must(err)
	plans, err = live.decide(c, attachers, objects, adopt.Options{Mode: adopt.ModeProxy, Image: "hub", Namespace: s.namespace})
	s.must(err)
	if len(plans) != 1 {
		s.t.Fatalf("%d csi-attachers, want 1", len(plans))
	}
	return plans, objects, errOut.String()
}

func TestALiveWorkloadIsReadAsItsManifestWithNameAndSecretsFromTheCluster(t *testing.T) {
	s := newLiveScene(t, "workload")
	s.volume("adopt-1", "a")
	s.volume("adopt-2", "a")
	s.volume("adopt-3", "b")
	plans, objects, warnings := s.plans(s.plane.Kubeconfig())
	p := plans[0]
	if p.Driver != s.driver || !strings.Contains(p.NameFrom, "held by Pod controller-1") || !p.Adoptable() {
		t.Errorf("driver %q from %q, reasons %q", p.Driver, p.NameFrom, p.No)
	}
	if want := []adopt.SecretName{{Namespace: "keys", Name: "a"}, {Namespace: "keys", Name: "b"}}; !slices.Equal(p.Secrets, want) {
		t.Errorf("Secrets %v, want %v", p.Secrets, want)
	}
	if warnings != "" {
		t.Errorf("warnings: %s", warnings)
	}
	o := objects[0]
	if o.Object["status"] != nil || o.GetUID() != "" || o.GetResourceVersion() != "" || o.GetManagedFields() != nil || !o.GetCreationTimestamp().Time.IsZero() || o.GetGeneration() != 0 {
		t.Errorf("fields of the server are left: %v", o.Object)
	}
	if a := o.GetAnnotations(); len(a) != 1 || a["kept"] != "yes" {
		t.Errorf("annotations %v", a)
	}
}

func TestRightsThatAreMissingAreWarningsAndNoFailure(t *testing.T) {
	s := newLiveScene(t, "denied")
	_, err := s.kube.CoreV1().ServiceAccounts(s.namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{})
	s.must(err)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: s.namespace}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}}}}
	_, err = s.kube.RbacV1().Roles(s.namespace).Create(t.Context(), role, metav1.CreateOptions{})
	s.must(err)
	_, err = s.kube.RbacV1().RoleBindings(s.namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: s.namespace}}}, metav1.CreateOptions{})
	s.must(err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	s.must(s.plane.WriteAccountKubeconfig(t.Context(), kubeconfig, s.namespace, "reader"))
	testbed.WaitAllowed(t, s.kube, authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + s.namespace + ":reader",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.namespace, Verb: "get", Group: "apps", Resource: "deployments", Name: "controller"}})
	plans, _, warnings := s.plans(kubeconfig)
	for _, kind := range []string{"CSIDriver", "StorageClass", "PersistentVolume", "Lease", "NetworkPolicy", "DaemonSet", "Pod"} {
		if !strings.Contains(warnings, "Warning: cannot read "+kind+" objects") {
			t.Errorf("no warning about %s:\n%s", kind, warnings)
		}
	}
	if p := plans[0]; p.Driver != "" || !strings.Contains(strings.Join(p.No, ""), "--driver NAME") {
		t.Errorf("driver %q, reasons %q", p.Driver, p.No)
	}
}

func TestAMissingWorkloadOfTheClusterIsNamed(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run([]string{"adopt", "deploy/nobody", "sts/neither", "-n", "default", "--kubeconfig", testbed.Shared(t).Kubeconfig()}, &stdout, &stderr)
	for _, want := range []string{"read deployments/nobody in namespace default", "read statefulsets/neither in namespace default", "not found"} {
		if code == 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit code %d, the error does not have %q: %s", code, want, stderr.String())
		}
	}
}

func TestAFileWinsOverAWorkloadOfTheCluster(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("deploy", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, "deploy/controller", "a: file\n")
	for input, want := range map[string]int{"deploy/controller": 0, "deploy/other": 1, "deploy": 0, "-": 0, "deployments.apps/a": 1, "StatefulSet/a": 1, "ds/a": 1, "pod/a": 0, "deploy/": 0, "deploy/a/b": 0, "deploy/..": 0} {
		if _, live := splitInputs([]string{input}); len(live) != want {
			t.Errorf("%s: %v, want %d of the cluster", input, live, want)
		}
	}
}
