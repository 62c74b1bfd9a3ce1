package deploy_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// adoptedImages are what each mode puts beside a driver.
var adoptedImages = map[string]string{"proxy": "registry.example.com/csi-attach-proxy:v1", "drop-in": "registry.example.com/csi-attach-hub:v1"}

// imageFor returns the image for flags of adopt.
func imageFor(flags []string) string {
	if slices.Contains(flags, dropIn) {
		return adoptedImages["drop-in"]
	}
	return adoptedImages["proxy"]
}

// adoptedNames are the drivers that a manifest does not name.
var adoptedNames = map[string][]string{
	"alibaba":  {"external-disk-attacher=diskplugin.csi.alibabacloud.com", "external-oss-attacher=ossplugin.csi.alibabacloud.com", "external-bmcpfs-attacher=bmcpfsplugin.csi.alibabacloud.com"},
	"ceph-rbd": {"csi-attacher=rbd.csi.ceph.com"},
	"oci":      {"csi-attacher=blockvolume.csi.oraclecloud.com"},
	"defaults": {"csi-attacher=io.openebs.csi-mayastor"},
}

// hubBinary returns the path of the program for commands that end at once. It is built without the race detector, with which
// every process sleeps for a second before it exits: hundreds of them are started here.
func hubBinary(t *testing.T) string { return binaryOf(t, "./cmd/csi-attach-hub") }

func binaryOf(t *testing.T, command string) string {
	t.Helper()
	path, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: command})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// rendered returns what adopt writes for a driver after a step, with the objects beside its workload; refused if the
// driver cannot be adopted so.
func rendered(t *testing.T, binary, file, mode, step string) (objects []*unstructured.Unstructured, refused string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "out")
	args := []string{"adopt", file, "-o", "kustomize=" + folder, "--mode", mode, "--image", adoptedImages[mode]}
	for _, name := range adoptedNames[strings.TrimSuffix(filepath.Base(file), ".yaml")] {
		args = append(args, "--driver", name)
	}
	if out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
		return nil, string(out)
	}
	objects = build(t, filepath.Join(folder, step))
	if mode == "proxy" {
		objects = append(objects, build(t, filepath.Join(folder, "objects"))...)
	}
	return objects, ""
}

// podsOf returns the Pods that the workloads among the objects would have.
func podsOf(t *testing.T, objects []*unstructured.Unstructured) map[string]*corev1.Pod {
	t.Helper()
	pods := map[string]*corev1.Pod{}
	for _, o := range objects {
		template, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template")
		if !found {
			continue
		}
		var pod corev1.PodTemplateSpec
		text, err := yaml.Marshal(template)
		if err == nil {
			err = yaml.UnmarshalStrict(text, &pod)
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.ToLower(o.GetKind()) + "-" + o.GetName()
		pod.Spec.PriorityClassName = "" // a class of the driver's must exist for a Pod to be admitted
		pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: pod.Labels}, Spec: pod.Spec}
	}
	return pods
}

// securityLevels are namespaces, the strictest first.
type securityLevels struct {
	client     kubernetes.Interface
	namespaces []string
}

func newSecurityLevels(ctx context.Context, t *testing.T, client kubernetes.Interface) securityLevels {
	t.Helper()
	s := securityLevels{client: client}
	for _, level := range []string{"restricted", "baseline", "privileged"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: level + "-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": level}}}
		created, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.namespaces = append(s.namespaces, created.Name)
	}
	return s
}

// of returns the number of the strictest level that admits a Pod; -1 if none does, with the error of the last.
func (s securityLevels) of(ctx context.Context, pod *corev1.Pod) (int, error) {
	var err error
	for i, namespace := range s.namespaces {
		if _, err = s.client.CoreV1().Pods(namespace).Create(ctx, pod.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}); err == nil {
			return i, nil
		}
	}
	return -1, err
}

// What adopt writes must be what a cluster takes wherever it took the manifest itself, and what the hub's program takes.
func TestManifestsOfDriversAreTakenByARealAPIServerAfterEachStep(t *testing.T) {
	binary := hubBinary(t)
	programs := map[string]string{"proxy": binaryOf(t, "./cmd/csi-attach-proxy"), "drop-in": binary}
	ctx := t.Context()
	a := newApplier(ctx, t)
	a.dryRun = []string{metav1.DryRunAll}
	client := testbed.Shared(t).Clientset()
	levels := newSecurityLevels(ctx, t, client)
	adopted := map[string][]string{}
	for _, file := range driverManifests(t) {
		manifest := strings.TrimSuffix(filepath.Base(file), ".yaml")
		original := readObjects(t, file)
		names := []string{"csi-attach-hub"}
		for _, o := range original {
			if o.GetNamespace() != "" {
				names = append(names, o.GetNamespace())
			}
		}
		for _, name := range names {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		before := map[string]int{} // level of each Pod
		for name, pod := range podsOf(t, original) {
			level, err := levels.of(ctx, pod)
			if err != nil {
				t.Fatal(err)
			}
			before[name] = level
		}
		for mode, steps := range map[string][]string{"proxy": {"observe", "active"}, "drop-in": {"active"}} {
			for _, step := range steps {
				t.Run(manifest+"/"+mode+"/"+step, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), testTimeout) // one for all would be short on a busy machine
					defer cancel()
					a := a
					a.t, a.ctx = t, ctx
					objects, refused := rendered(t, binary, file, mode, step)
					if refused != "" {
						t.Logf("not adopted: %s", refused)
						return
					}
					adopted[mode] = append(adopted[mode], manifest)
					a.apply(objects...)
					for name, pod := range podsOf(t, objects) {
						if got, err := levels.of(ctx, pod); err != nil || got > before[name] {
							t.Errorf("%s needs a namespace of level %d, before it was %d (0 is the strictest): %v", name, got, before[name], err)
						}
						for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
							if c.Image == adoptedImages[mode] {
								startsWith(t, programs[mode], c)
							}
						}
					}
				})
			}
		}
	}
	all := []string{"alibaba", "azuredisk", "ceph-rbd", "cinder", "daemonset", "digitalocean", "ebs", "hetzner", "ibm-vpc", "linode", "oci", "powerstore", "statefulset", "synology", "trident", "vsphere"}
	for mode, manifests := range map[string][]string{"proxy": all, "drop-in": all} {
		for _, manifest := range manifests {
			if !slices.Contains(adopted[mode], manifest) {
				t.Errorf("--mode %s does not adopt %s", mode, manifest)
			}
		}
	}
}

// startsWith starts the program with the arguments of a container. Files of the cluster are not here, and that must be all
// that the program has to complain of.
func startsWith(t *testing.T, binary string, c corev1.Container) {
	t.Helper()
	if len(c.Command) > 1 || len(c.Command) == 1 && c.Command[0] != "/"+imageName(c.Image) {
		t.Errorf("the image has no command %v", c.Command)
	}
	args := slices.Clone(c.Args)
	missing := "there is no file /attach-hub/ca/ca.crt"
	if imageName(c.Image) != "csi-attach-proxy" {
		missing = filepath.Join(t.TempDir(), "kubeconfig")
		args = append(args, "--kubeconfig="+missing)
	}
	for i := range args {
		for _, e := range c.Env {
			value := e.Value
			if e.ValueFrom != nil {
				value = "of-the-pod"
			}
			args[i] = strings.ReplaceAll(args[i], "$("+e.Name+")", value)
		}
	}
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), missing) || strings.Contains(string(out), "unknown flag") {
		t.Errorf("%s with %v ended with %v and said %s", c.Name, args, err, out)
	}
}
