package deploy_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// as returns an object as its Go type.
func as[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, out, true); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return out
}

func TestConfigMapIsMadeFromTheExampleOfTheRepository(t *testing.T) {
	// kubectl builds no file from outside of deploy, a link out of it neither.
	want := readFile(t, "../drivers.yaml")
	if !bytes.Equal(want, readFile(t, "base/drivers.yaml")) {
		t.Error("deploy/base/drivers.yaml is not drivers.yaml any more: cp drivers.yaml deploy/base/")
	}
	config := as[corev1.ConfigMap](t, find(t, build(t, install), "ConfigMap", "csi-attach-hub-drivers"))
	if config.Data["drivers.yaml"] != string(want) {
		t.Error("the ConfigMap has something else")
	}
}

func TestEveryDriversYAMLIsValid(t *testing.T) {
	files, err := filepath.Glob("overlays/*/drivers.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no drivers.yaml in the overlays", err)
	}
	for _, path := range files {
		if _, err := registry.ParseManifestFile(path); err != nil {
			t.Error(err)
		}
	}
}

// `kubectl kustomize FOLDER | csi-attach-hub validate -` finds the ConfigMap of the drivers beside that of the dashboard.
func TestBuiltManifestsCanBeValidated(t *testing.T) {
	for _, folder := range []string{install, "overlays/proxies", "overlays/host-sockets"} {
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
		if err != nil {
			t.Fatal(err)
		}
		manifests, err := resources.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		if configs, err := registry.ParseManifest(folder, manifests); err != nil || len(configs) != 1 {
			t.Errorf("%s: %d configurations, %v", folder, len(configs), err)
		}
		broken := bytes.Replace(manifests, []byte("    kind: DriverConfig\n"), []byte("    kind: Drivers\n"), 1)
		line := 1 + bytes.Count(broken[:bytes.Index(broken, []byte("kind: Drivers\n"))], []byte("\n"))
		want := fmt.Sprintf("%s:%d: kind: must be DriverConfig, not \"Drivers\"", folder, line)
		if _, err := registry.ParseManifest(folder, broken); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The Role for Events is in another namespace, and drivers have theirs: what names the
// ServiceAccount must go on to mean the hub's. Only reading the metrics is for another.
func TestEveryRightIsGivenToTheHub(t *testing.T) {
	for _, folder := range kustomizations(t) {
		for _, o := range build(t, folder) {
			var subjects []rbacv1.Subject
			switch o.GetKind() {
			case "RoleBinding":
				subjects = as[rbacv1.RoleBinding](t, o).Subjects
			case "ClusterRoleBinding":
				subjects = as[rbacv1.ClusterRoleBinding](t, o).Subjects
			default:
				continue
			}
			account := "csi-attach-hub"
			if o.GetName() == "csi-attach-hub-metrics" {
				account = o.GetName()
			}
			want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: "csi-attach-hub"}}
			if !slices.Equal(subjects, want) {
				t.Errorf("%s: %s %s is for %v", folder, o.GetKind(), o.GetName(), subjects)
			}
		}
	}
}

func TestEveryContainerOfOursIsConfined(t *testing.T) {
	found := 0
	for _, folder := range kustomizations(t) {
		for _, o := range build(t, folder) {
			if o.GetKind() != "Deployment" {
				continue
			}
			pod := as[appsv1.Deployment](t, o).Spec.Template.Spec
			for _, c := range pod.Containers {
				if !strings.HasSuffix(strings.Split(c.Image, ":")[0], "csi-attach-hub") {
					continue
				}
				found++
				s := c.SecurityContext
				switch {
				case s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
					t.Errorf("%s: %s may gain privileges", folder, c.Name)
				case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
					t.Errorf("%s: %s may write its root file system", folder, c.Name)
				case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
					t.Errorf("%s: %s has capabilities", folder, c.Name)
				case seccomp(pod, c) != corev1.SeccompProfileTypeRuntimeDefault:
					t.Errorf("%s: %s has no seccomp profile", folder, c.Name)
				case c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero():
					t.Errorf("%s: %s has no request or no limit of memory", folder, c.Name)
				}
			}
		}
	}
	if want := len(kustomizations(t)); found != want {
		t.Errorf("%d containers of ours, want one in each of %d kustomizations", found, want)
	}
}

func seccomp(pod corev1.PodSpec, c corev1.Container) corev1.SeccompProfileType {
	if p := c.SecurityContext.SeccompProfile; p != nil {
		return p.Type
	}
	if s := pod.SecurityContext; s != nil && s.SeccompProfile != nil {
		return s.SeccompProfile.Type
	}
	return ""
}

func TestPodsHaveTimeToDrain(t *testing.T) {
	for _, folder := range kustomizations(t) {
		for _, o := range build(t, folder) {
			if o.GetKind() != "Deployment" || o.GetName() != "csi-attach-hub" {
				continue
			}
			pod := as[appsv1.Deployment](t, o).Spec.Template.Spec
			grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
			drain, err := time.ParseDuration(argument(t, pod.Containers[0].Args, "--shutdown-grace"))
			if err != nil {
				t.Fatal(err)
			}
			// Beyond the calls in flight: leases, the HTTP server, and the watches.
			if grace < drain+10*time.Second {
				t.Errorf("%s: killed after %v, with a grace of %v for calls", folder, grace, drain)
			}
		}
	}
}

// argument returns the value of a flag.
func argument(t *testing.T, args []string, flag string) string {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
	}
	t.Fatalf("%v has no %s", args, flag)
	return ""
}

func TestHubOfTheHostReachesSocketsOfRoot(t *testing.T) {
	pod := as[appsv1.Deployment](t, find(t, build(t, "overlays/host-sockets"), "Deployment", "csi-attach-hub")).Spec.Template.Spec
	if s := pod.SecurityContext; *s.RunAsUser != 0 || *s.RunAsNonRoot {
		t.Errorf("it runs as user %d", *s.RunAsUser)
	}
}
