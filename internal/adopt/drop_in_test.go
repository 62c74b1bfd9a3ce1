package adopt

import (
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// attacherAfter returns the container of csi-attacher after the swap.
func attacherAfter(t *testing.T, p Plan) corev1.Container {
	t.Helper()
	c, found := containerNamed(templateAfter(t, []Plan{p}, StepActive), "csi-attacher")
	if !found {
		t.Fatal("csi-attacher is gone")
	}
	return c
}

func TestDropInTakesTheArgumentsThatTheHubHas(t *testing.T) {
	for name, tt := range map[string]struct {
		args, attacher string
		want           string // args
		no, note       string // fragments; "" for no such line
	}{
		"only the image":               {`--csi-address=/run/csi/a, "--timeout=$(T)"`, "env: [{name: T, value: 1m}]", "--csi-address=/run/csi/a --timeout=$(T)", "", "runAsUser: 0"},
		"without an address":           {"--timeout=1m", "", "--timeout=1m --csi-address=/run/csi/socket", "", ""},
		"a command":                    {"--v=2", "command: [/usr/bin/csi-attacher, --csi-address=/run/csi/a]", "--csi-address=/run/csi/a --v=2", "", ""},
		"another command":              {"--v=2", "command: [/start, --csi-address=/run/csi/a]", "--csi-address=/run/csi/a --v=2", "the hub's image has no /start", ""},
		"flags of an old csi-attacher": {`--csi-address=/run/csi/a, --connection-timeout, 15s, --dummy, -logtostderr=true, --v=2`, "", "--csi-address=/run/csi/a --v=2", "", "--connection-timeout 15s, --dummy, -logtostderr=true: removed"},
		"the lock was a Lease":         {`--csi-address=/run/csi/a, --leader-election-type, leases`, "", "--csi-address=/run/csi/a", "", "removed"},
		"a flag of somebody else":      {`--csi-address=/run/csi/a, --foreign=1`, "", "--csi-address=/run/csi/a --foreign=1", "the argument --foreign=1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := podWith(t, Options{Mode: ModeDropIn}, tt.args, tt.attacher, "")
			c := attacherAfter(t, p)
			if got := strings.Join(c.Args, " "); got != tt.want || len(c.Command) > 0 && c.Command[0] != "/csi-attach-hub" {
				t.Errorf("command %v, args %s, want %s", c.Command, got, tt.want)
			}
			if no := strings.Join(p.No, "\n"); !strings.Contains(no, tt.no) || (tt.no == "") != (no == "") {
				t.Errorf("no: %q", no)
			}
			if notes := strings.Join(p.Notes, "\n"); !strings.Contains(notes, tt.note) || strings.Contains(notes, "removed") != strings.Contains(tt.note, "removed") {
				t.Errorf("notes: %q", notes)
			}
		})
	}
}

func TestDropInOpensTheSocketAsTheUserOfCSIAttacher(t *testing.T) {
	user := int64(1234)
	for name, tt := range map[string]struct {
		o                  Options
		attacher, podSpec  string
		want               int64 // -1: that of the image, which OpenShift replaces
		adoptable, changed bool
	}{
		"not said: root":              {Options{}, "", "", 0, true, true},
		"of the container":            {Options{}, "securityContext: {runAsUser: 1000}", "", 1000, true, false},
		"of the Pod":                  {Options{}, "", "securityContext: {runAsUser: 1000, runAsNonRoot: true}", 1000, true, false},
		"some user, but not root":     {Options{}, "securityContext: {runAsNonRoot: true}", "", 0, false, false},
		"named by the user":           {Options{RunAsUser: &user}, "securityContext: {runAsNonRoot: true}", "", 1234, true, true},
		"OpenShift, user not said":    {Options{OpenShift: true}, "", "", -1, true, false},
		"OpenShift, not as root":      {Options{OpenShift: true}, "securityContext: {runAsNonRoot: true}", "", -1, true, false},
		"OpenShift, user in the YAML": {Options{OpenShift: true}, "securityContext: {runAsUser: 0}", "", 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Mode = ModeDropIn
			p := podWith(t, tt.o, "--csi-address=/run/csi/a", tt.attacher, tt.podSpec)
			template := templateAfter(t, []Plan{p}, StepActive)
			c, _ := containerNamed(template, "csi-attacher")
			got := int64(-1)
			if u := userOf(template.Spec, c); u.UID != nil {
				got = *u.UID
			}
			if got != tt.want || p.Adoptable() != tt.adoptable {
				t.Errorf("user %d, want %d; no: %v", got, tt.want, p.No)
			}
			if changed := strings.Contains(strings.Join(p.Notes, "\n"), "is added"); changed != tt.changed {
				t.Errorf("a note of the change: %v", p.Notes)
			}
		})
	}
}

func TestDropInHasTheMemoryOfAHub(t *testing.T) {
	for limit, want := range map[string]string{"20Mi": "512Mi", "256Mi": "512Mi", "512Mi": "512Mi", "1Gi": "1Gi", "": "0"} {
		attacher := ""
		if limit != "" {
			attacher = "resources: {requests: {memory: 16Mi}, limits: {cpu: 100m, memory: " + limit + "}}"
		}
		p := podWith(t, Options{Mode: ModeDropIn}, "--csi-address=/run/csi/a", attacher, "")
		c := attacherAfter(t, p)
		if got := c.Resources.Limits.Memory().String(); got != want {
			t.Errorf("limit of %q has become %s, want %s", limit, got, want)
		}
		if noted := strings.Contains(strings.Join(p.Notes, "\n"), "limits.memory"); noted != (limit != "" && limit != want) {
			t.Errorf("limit of %q: %v", limit, p.Notes)
		}
	}
}

func TestReplicasWithoutLeaderElectionAreNotSwapped(t *testing.T) {
	two := strings.Replace(onePod, "spec:\n  template:", "spec:\n  replicas: 2\n  template:", 1)
	for args, want := range map[string]bool{"--v=2": false, "--leader-election": true} {
		text := strings.NewReplacer("NAME", "driver", "ARGS", args, "ATTACHER", "", "POD", "").Replace(two)
		if p := plansOfText(t, []byte(text), Options{Mode: ModeDropIn})[0]; p.Adoptable() != want {
			t.Errorf("%s: no: %v", args, p.No)
		}
	}
}

// Longhorn restores the Deployment that it makes of its csi-attacher.
func TestTheDeployerOfCSIAttacherIsChangedInItsPlace(t *testing.T) {
	p := plansFor(t, "longhorn", Options{Mode: ModeDropIn})[0]
	if name := p.Workload.GetName(); name != "longhorn-driver-deployer" {
		t.Fatalf("%s is changed", name)
	}
	before, _ := containerNamed(p.Workload.Template, "longhorn-driver-deployer")
	after, _ := containerNamed(templateAfter(t, []Plan{p}, StepActive), "longhorn-driver-deployer")
	i := slices.IndexFunc(before.Env, func(e corev1.EnvVar) bool { return e.Name == "CSI_ATTACHER_IMAGE" })
	before.Env[i].Value = "registry.example.com/csi-attach-hub:v1-root"
	if !slices.EqualFunc(before.Env, after.Env, func(a, b corev1.EnvVar) bool { return a.Name == b.Name && a.Value == b.Value }) {
		t.Errorf("the environment is %v", after.Env)
	}
	for image, want := range map[string]string{"hub": "hub", "r:5000/hub": "r:5000/hub", "r:5000/hub:v1": "r:5000/hub:v1-root", "hub:v1-root": "hub:v1-root", "hub:v1@sha256:12": "hub:v1@sha256:12"} {
		if got := rootImage(image); got != want {
			t.Errorf("the variant of %s is %s, want %s", image, got, want)
		}
	}

	generated := strings.Replace(onePod, "namespace: storage}", "namespace: storage, labels: {longhorn.io/managed-by: longhorn-manager}}", 1)
	generated = strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(generated)
	for mode, want := range map[Mode]string{ModeDropIn: "CSI_ATTACHER_IMAGE of Deployment longhorn-driver-deployer", ModeSidecarHub: "--mode drop-in"} {
		if p := plansOfText(t, []byte(generated), Options{Mode: mode})[0]; !strings.Contains(strings.Join(p.No, "\n"), want) {
			t.Errorf("without the deployer, %s: no: %v", mode, p.No)
		}
	}
}

// foundDeployers returns the deployers of the chart of Longhorn, which has no csi-attacher.
func foundDeployers(t *testing.T, old, changed string) ([]Attacher, []Object) {
	t.Helper()
	text, err := os.ReadFile("testdata/manifests/longhorn.yaml")
	if err != nil {
		t.Fatal(err)
	}
	chart, _, _ := strings.Cut(strings.ReplaceAll(string(text), old, changed), "---\napiVersion: storage.k8s.io/v1\nkind: CSIDriver")
	objects, err := Read("longhorn.yaml", strings.NewReader(chart))
	if err != nil {
		t.Fatal(err)
	}
	found := FindDeployers(objects, "default", nil)
	if len(found) != 1 || len(FindDeployers(objects, "default", found)) != 0 {
		t.Fatalf("found %v", found)
	}
	return found, objects
}

func TestADropInNeedsNoDriverName(t *testing.T) {
	found, objects := foundDeployers(t, "- deploy-driver", "- other")
	plans := NewPlans(found, objects, Options{Mode: ModeDropIn, Image: "hub:v1"})
	if err := Check(plans); plans[0].Driver != "" || !plans[0].Adoptable() || err != nil || folderName(plans) == "" {
		t.Errorf("driver %q, no: %v, error %v, plugin %s", plans[0].Driver, plans[0].No, err, folderName(plans))
	}
}

func TestADeployerWithoutItsCSIAttacherIsFound(t *testing.T) {
	found, objects := foundDeployers(t, "", "")
	for _, mode := range Modes {
		p := NewPlans(found, objects, Options{Mode: mode, Image: "hub:v1"})[0]
		if mode != ModeDropIn {
			if len(p.No) != 1 || !strings.Contains(p.No[0], "--mode drop-in") {
				t.Errorf("%s: no: %v", mode, p.No)
			}
			continue
		}
		if text := string(Text([]Plan{p}, Arguments{})); p.Driver != "driver.longhorn.io" || strings.Contains(text, "Socket ") || strings.Contains(text, "runAsUser") {
			t.Errorf("driver %q\n%s", p.Driver, text)
		}
		patch, err := workloadPatch([]Plan{p}, StepActive)
		if err != nil || !p.Adoptable() || !strings.Contains(string(patch), "value: hub:v1-root\n") {
			t.Errorf("%v, no: %v\n%s", err, p.No, patch)
		}
	}
}

// Rook has a variable of another name, and several csi-attachers of one image.
func TestADeployerIsChangedInTheVariableWithTheImageOfCSIAttacher(t *testing.T) {
	const operator = `---
apiVersion: KIND
metadata: {name: operator, namespace: rook}
spec:
  template:
    spec:
      CONTAINERS:
        - name: operator
          image: rook
          env: [{name: OTHER, value: "1"}, {name: ROOK_CSI_ATTACHER_IMAGE, value: "csi-attacher:v4.9.0"}]
`
	made := strings.NewReplacer("ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(onePod)
	made = strings.ReplaceAll(made, "NAME", "a") + "---" + strings.ReplaceAll(strings.ReplaceAll(made, "name: csi-attacher", "name: b-attacher"), "NAME", "b")
	for kind, adoptable := range map[string]bool{"apps/v1\nkind: Deployment": true, "example.com/v1\nkind: Operator": false} {
		for _, list := range []string{"containers", "initContainers"} {
			plans := plansOfText(t, []byte(made+strings.NewReplacer("KIND", kind, "CONTAINERS", list).Replace(operator)), Options{Mode: ModeDropIn})
			for _, p := range plans {
				if p.Adoptable() != (adoptable && list == "containers") || !p.Adoptable() && !strings.Contains(strings.Join(p.No, ""), "ROOK_CSI_ATTACHER_IMAGE") {
					t.Errorf("%s, %s: no: %v", kind, list, p.No)
				}
			}
			groups := byWorkload(plans)
			if !adoptable || list != "containers" {
				continue
			}
			if len(groups) != 1 {
				t.Fatalf("%d workloads are changed", len(groups))
			}
			patch := patchOf(groups[0], StepActive)
			c, _ := containerNamed(templateAfter(t, groups[0], StepActive), "operator")
			if len(patch.Spec.Containers) != 1 || len(c.Env) != 2 || c.Env[1] != (corev1.EnvVar{Name: "ROOK_CSI_ATTACHER_IMAGE", Value: "registry.example.com/csi-attach-hub:v1-root"}) {
				t.Errorf("%d changes lead to %v", len(patch.Spec.Containers), c.Env)
			}
			if err := Check(plans); err != nil {
				t.Error(err)
			}
		}
	}
}
