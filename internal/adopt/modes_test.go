package adopt

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

var updatePatches = flag.Bool("update-patches", false, "write testdata/patches")

// plainFlags reads the flags of csi-attacher that patches depend on. Its command reads all.
func plainFlags(args []string) (Flags, error) {
	var f Flags
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
	return together(plans)
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
	if o.Image == "" {
		o.Image = "registry.example.com/csi-attach-hub:v1"
	}
	return NewPlans(attachers, objects, o)
}

func TestPatchesOfEveryManifestAndMode(t *testing.T) {
	for _, mode := range Modes {
		for _, manifest := range manifestNames(t) {
			t.Run(string(mode)+"/"+manifest, func(t *testing.T) {
				var got strings.Builder
				plans := plansFor(t, manifest, Options{Mode: mode})
				for _, group := range byWorkload(plans) {
					for _, step := range mode.Steps() {
						patch, err := workloadPatch(group, step)
						if err != nil {
							t.Fatal(err)
						}
						fmt.Fprintf(&got, "# Step %s.\n%s---\n", step, patch)
					}
				}
				path := "testdata/patches/" + string(mode) + "/" + manifest + ".yaml"
				if *updatePatches {
					err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(got.String()), 0o644))
					if err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil || got.String() != string(want) {
					t.Errorf("%s differs (%v): check the patches, then write them with -update-patches:\n%s", path, err, got.String())
				}
			})
		}
	}
}

// templateAfter returns the Pod template of the first workload after a step, which must have no field that there is not.
func templateAfter(t *testing.T, group []Plan, step Step) corev1.PodTemplateSpec {
	t.Helper()
	content, err := Patched(group, step)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(content["spec"].(map[string]any)["template"])
	if err != nil {
		t.Fatal(err)
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

func TestAStepChangesOnlyWhatItIsAbout(t *testing.T) {
	for _, mode := range Modes {
		for _, manifest := range manifestNames(t) {
			plans := plansFor(t, manifest, Options{Mode: mode})
			for _, group := range byWorkload(plans) {
				for _, step := range mode.Steps() {
					after := templateAfter(t, group, step)
					ours := map[string]bool{}
					for _, p := range group {
						_, kept := containerNamed(after, p.Container.Name)
						_, added := containerNamed(after, p.Base())
						ours[p.Base()], ours[p.Container.Name], ours[p.deployer] = true, true, true
						switch {
						case mode != ModeDropIn && kept != (step == StepObserve):
							t.Errorf("%s, %s, %s: csi-attacher is there: %v", manifest, mode, step, kept)
						case mode == ModeProxy && !added, mode == ModeSidecarHub && p.FirstOfPod() && !added, mode == ModeDropIn && added:
							t.Errorf("%s, %s, %s: a container of ours was added: %v", manifest, mode, step, added)
						}
					}
					for _, c := range slices.Concat(group[0].Workload.Template.Spec.Containers, group[0].Workload.Template.Spec.InitContainers) {
						if now, _ := containerNamed(after, c.Name); !ours[c.Name] && !reflect.DeepEqual(now, c) {
							t.Errorf("%s, %s, %s: container %s has changed", manifest, mode, step, c.Name)
						}
					}
				}
			}
		}
	}
}

func TestPortsNeverCollide(t *testing.T) {
	for _, port := range []int32{0, 9443} {
		onNodes := map[int32]string{}
		for _, manifest := range manifestNames(t) {
			inPod := map[*Workload]map[int32]bool{}
			for _, p := range plansFor(t, manifest, Options{Mode: ModeProxy, Port: port}) {
				if inPod[p.Workload] == nil {
					inPod[p.Workload] = map[int32]bool{}
					if port == 0 {
						inPod[p.Workload] = p.usedPorts()
					}
				}
				for _, number := range []int32{p.Ports.Listen, p.Ports.Health} {
					if inPod[p.Workload][number] || number < 1024 || number > 29999 {
						t.Errorf("%s: %s has port %d, which is used or cannot be", manifest, p.Driver, number)
					}
					inPod[p.Workload][number] = true
					if other := onNodes[number]; p.HostNetwork() && port == 0 && other != "" && other != p.Driver {
						t.Errorf("on nodes %s and %s have port %d", other, p.Driver, number)
					}
					if p.HostNetwork() {
						onNodes[number] = p.Driver
					}
				}
			}
		}
	}
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

func TestPortsOfArgumentsAndOfOtherDriversAreAvoided(t *testing.T) {
	p := podWith(t, Options{Mode: ModeProxy}, "--leader-election", "", "")
	if p.Ports != (Ports{9453, 9819}) {
		t.Errorf("got %v beside a driver that listens on 9443", p.Ports)
	}
	var documents []string
	for _, name := range []string{"a", "b"} {
		documents = append(documents, strings.NewReplacer("NAME", name, "ARGS", "", "ATTACHER", "", "POD", "hostNetwork: true").Replace(onePod))
	}
	for _, port := range []int32{0, 19000} {
		plans := plansOfText(t, []byte(strings.Join(documents, "---")), Options{Mode: ModeProxy, Port: port}) // of one name, so of one number
		if a, b := plans[0].Ports, plans[1].Ports; b.Listen != a.Listen+2 || a.Health != a.Listen+1 {
			t.Errorf("two drivers on the nodes have ports %v and %v", a, b)
		}
	}
}

func TestPoliciesLeaveNoPortOfAProxyOpenToEverybody(t *testing.T) {
	for _, manifest := range manifestNames(t) {
		plans := plansFor(t, manifest, Options{Mode: ModeProxy})
		for _, p := range plans {
			if p.HostNetwork() {
				continue
			}
			text, err := p.execute("networkpolicy.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var policy networkingv1.NetworkPolicy
			if err := yaml.UnmarshalStrict(text, &policy); err != nil {
				t.Fatal(err)
			}
			open := map[int32]bool{}
			for _, rule := range policy.Spec.Ingress {
				for _, ports := range rule.Ports {
					last := ports.Port.IntVal
					if ports.EndPort != nil {
						last = *ports.EndPort
					}
					for n := ports.Port.IntVal; len(rule.From) == 0 && *ports.Protocol == corev1.ProtocolTCP && n <= last; n++ {
						open[n] = true
					}
				}
			}
			for _, other := range plans {
				if samePod := other.Workload == p.Workload; samePod && (open[other.Ports.Listen] || open[other.Ports.Health]) {
					t.Errorf("%s: the policy of %s leaves ports of %s open: %v", manifest, p.Driver, other.Driver, other.Ports)
				}
			}
			if !open[1] || !open[65535] || !open[9442] {
				t.Errorf("%s: the policy of %s closes ports of the driver", manifest, p.Driver)
			}
		}
	}
}
