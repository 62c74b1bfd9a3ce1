package adopt

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// manifest is a controller that can be adopted. Tests change a part of it.
const manifest = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: controller
  namespace: storage
spec:
  replicas: 1
  template:
    metadata:
      labels: {app: controller}
    spec:
      containers:
        - name: driver
          image: example.com/driver:v1
          args: [--driver-name=block.example.com]
          volumeMounts: [{name: sockets, mountPath: /csi}]
        - name: csi-attacher
          image: registry.k8s.io/sig-storage/csi-attacher:v4.10.0
          args: [--csi-address=/csi/csi.sock, --leader-election, --timeout=1m, --worker-threads=5, --kube-api-qps=9]
          volumeMounts: [{name: sockets, mountPath: /csi}]
      volumes:
        - name: sockets
          emptyDir: {}
`

// changed returns the manifest with texts replaced, which must be there, in pairs of old and new.
func changed(t *testing.T, pairs ...string) string {
	t.Helper()
	text := manifest
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the manifest has no %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

func read(t *testing.T, text string) []Object {
	t.Helper()
	objects, err := Read("file.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// plans returns the plans of manifests. Options get what the command gives by default.
func plans(t *testing.T, text string, o Options) []Plan {
	t.Helper()
	if o.Mode == "" {
		o.Mode = ModeProxy
	}
	o.Image, o.HubNamespace = "example.com/hub:v1", DefaultHubNamespace
	objects := read(t, text)
	attachers, err := Find(objects, o.Namespace, plainFlags)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Check(attachers); err != nil {
		t.Fatal(err)
	}
	return NewPlans(attachers, objects, o)
}

// onlyPlan returns the plan of manifests with one csi-attacher.
func onlyPlan(t *testing.T, text string, o Options) Plan {
	t.Helper()
	all := plans(t, text, o)
	if len(all) != 1 {
		t.Fatalf("%d csi-attachers, want 1", len(all))
	}
	return all[0]
}

// plainFlags reads the flags of csi-attacher that patches depend on. Its command reads all.
func plainFlags(args []string) (Flags, error) {
	f := Flags{LeaseDuration: 15 * time.Second}
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			i++
			value = args[i]
		}
		switch name {
		case "csi-address":
			f.Address = value
		case "leader-election":
			f.LeaderElection = value != "false"
		case "leader-election-namespace":
			f.LeaseNamespace = value
		case "timeout":
			f.Settings = append(f.Settings, Setting{Key: "timeout", Value: value, Flag: "--timeout"})
		case "kubeconfig":
			f.Kubeconfig = value
		case "leader-election-type":
			f.LockType = value
		case "http-endpoint":
			f.Other = append(f.Other, "--http-endpoint="+value)
		case "foreign":
			f.Unknown = append(f.Unknown, "--foreign="+value)
		}
	}
	return f, nil
}

// manifestNames are the names of the files in testdata/manifests.
func manifestNames(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no manifests", err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".yaml")
	}
	return files
}

// plansFor returns the plans of a manifest in testdata/manifests, each with a name for its driver, as if all could be adopted.
func plansFor(t *testing.T, manifest string, o Options) []Plan {
	t.Helper()
	text, err := os.ReadFile("testdata/manifests/" + manifest + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	plans := plansOfText(t, text, o)
	for i := range plans {
		plans[i].No = nil
	}
	return plans
}

func plansOfText(t *testing.T, text []byte, o Options) []Plan {
	t.Helper()
	for _, name := range []string{"PDCSI_NAMESPACE", "POD_NAMESPACE"} { // of the Pod
		text = bytes.ReplaceAll(text, []byte("$("+name+")"), []byte("pod-namespace"))
	}
	objects, err := Read("driver.yaml", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	attachers, err := Find(objects, "default", plainFlags)
	if err != nil || len(attachers) == 0 {
		t.Fatal("no csi-attacher was found: ", err)
	}
	for _, a := range attachers {
		o.Drivers = append(o.Drivers, a.Container.Name+"="+a.Container.Name+".example.com")
	}
	o.Image, o.HubNamespace = "registry.example.com/csi-attach-hub:v1", DefaultHubNamespace
	return NewPlans(attachers, objects, o)
}

// byWorkload groups plans by their workload.
func byWorkload(plans []Plan) map[*Workload][]Plan {
	groups := map[*Workload][]Plan{}
	for _, p := range plans {
		groups[p.Workload] = append(groups[p.Workload], p)
	}
	return groups
}

// templateAfter returns the Pod template of a workload after a step, which must have no field that there is not.
func templateAfter(t *testing.T, group []Plan, last string) corev1.PodTemplateSpec {
	t.Helper()
	text, err := json.Marshal(group[0].Workload.Template)
	for _, step := range group[0].Options.Mode.Steps() {
		patch, err2 := execute(string(step)+".yaml", folder{Plan: group[0], Plans: group})
		var content struct {
			Spec struct{ Template json.RawMessage }
		}
		err3 := yaml.Unmarshal([]byte(patch), &content)
		if err = errors.Join(err, err2, err3); err == nil {
			text, err = strategicpatch.StrategicMergePatch(text, content.Spec.Template, corev1.PodTemplateSpec{})
		}
		if err != nil {
			t.Fatal(err)
		}
		if step == last {
			break
		}
	}
	var template corev1.PodTemplateSpec
	if err := yaml.UnmarshalStrict(text, &template); err != nil {
		t.Fatal(err)
	}
	return template
}

func containerNamed(template corev1.PodTemplateSpec, name string) (corev1.Container, bool) {
	all := slices.Concat(template.Spec.Containers, template.Spec.InitContainers)
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return corev1.Container{}, false
	}
	return all[i], true
}

// onePod is a Deployment with one csi-attacher and its driver. Words in capital letters are replaced.
const onePod = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: storage}
spec:
  template:
    spec:
      POD
      volumes: [{name: socket, emptyDir: {}}]
      containers:
        - name: driver
          image: driver
          args: [--port=9443, "--health=:9463"]
          volumeMounts: [{name: socket, mountPath: /csi}]
        - name: csi-attacher
          image: csi-attacher:v4.9.0
          volumeMounts: [{name: socket, mountPath: /run/csi}]
          args: [ARGS]
          ATTACHER
`

// podWith returns the plan of a Deployment: flags of csi-attacher, and lines of its container and of the Pod in YAML.
func podWith(t *testing.T, o Options, args, attacher, podSpec string) Plan {
	t.Helper()
	text := strings.NewReplacer("NAME", "driver", "ARGS", args, "ATTACHER", attacher, "POD", podSpec).Replace(onePod)
	return plansOfText(t, []byte(text), o)[0]
}
