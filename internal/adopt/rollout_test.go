package adopt_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

var podsPath = regexp.MustCompile(`get pods .*? -o jsonpath='([^']+)'`)

// The check must name a Pod while it is there, whatever else it has, and nothing else: it decides when the hub works.
func TestTheCheckPrintsThePodsThatStillHaveAnAttacher(t *testing.T) {
	text := textOf(t, manifest, adopt.Options{})
	found := podsPath.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no check:\n%s", text)
	}
	pod := func(name string, containers ...string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
		return p
	}
	data, err := json.Marshal(corev1.PodList{Items: []corev1.Pod{pod("old", "driver", "csi-attacher"), pod("new", "driver", "csi-attacher-exporter")}})
	if err != nil {
		t.Fatal(err)
	}
	var list any
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	path := jsonpath.New("pods").AllowMissingKeys(true) // as kubectl get
	if err := path.Parse(found[1]); err != nil {
		t.Fatal(err)
	}
	if err := path.Execute(&out, list); err != nil || out.String() != "old csi-attacher\nnew \n" {
		t.Errorf("prints %q, %v", out.String(), err)
	}
}

func TestStepsDeletePodsThatNoUpdateReplaces(t *testing.T) {
	set := changed(t, "kind: Deployment", "kind: StatefulSet", "  replicas: 1\n", "  replicas: 1\n  updateStrategy: {type: OnDelete}\n")
	for _, mode := range adopt.Modes {
		text := textOf(t, set, adopt.Options{Mode: mode})
		if strings.Contains(text, "rollout status") || strings.Contains(text, "replaced once") || !strings.Contains(text, "kubectl -n storage delete pod -l app=controller") {
			t.Errorf("mode %s: the Pods are not replaced:\n%s", mode, text)
		}
	}
}

func TestCertificatesAreThereBeforeThePodsAreReplaced(t *testing.T) {
	text := textOf(t, manifest, adopt.Options{})
	last := -1
	for _, want := range []string{"get crd certificates.cert-manager.io", "kubectl apply -f attach-hub-block-example-com/observe/objects.yaml", "certificate/attach-hub-block-example-com ", "kubectl apply -k attach-hub-block-example-com/observe",
		"certificate/attach-hub-block-example-com-ca", "test -s block.example.com.crt"} {
		at := strings.Index(text, want)
		if at <= last {
			t.Errorf("%q is missing, or too early:\n%s", want, text)
		}
		last = at
	}
}

// One of two Pods of a rolling update would wait without end for a port of its node.
func TestARollingUpdateOnTheNetworkOfNodesStartsNoPodFirst(t *testing.T) {
	for name, test := range map[string]struct {
		change []string
		want   bool
	}{
		"Pod network":        {nil, false},
		"host network":       {[]string{"    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers"}, true},
		"Recreate":           {[]string{"    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers", "  replicas: 1\n", "  replicas: 1\n  strategy: {type: Recreate}\n"}, false},
		"surge of nothing":   {[]string{"    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers", "  replicas: 1\n", "  replicas: 1\n  strategy: {rollingUpdate: {maxSurge: 0}}\n"}, false},
		"surge of a quarter": {[]string{"    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers", "  replicas: 1\n", "  replicas: 1\n  strategy: {rollingUpdate: {maxSurge: 25%}}\n"}, true},
	} {
		p := onlyPlan(t, changed(t, test.change...), adopt.Options{})
		files, err := adopt.Kustomize([]adopt.Plan{p}, "out")
		if err != nil {
			t.Fatal(err)
		}
		patched, err := adopt.Patched([]adopt.Plan{p}, adopt.StepObserve)
		if err != nil {
			t.Fatal(err)
		}
		after, err := json.Marshal(patched["spec"].(map[string]any)["strategy"])
		if err != nil {
			t.Fatal(err)
		}
		inPatch := strings.Contains(string(files["observe/deployment.storage.controller.yaml"]), "maxSurge: 0\n")
		rendered := strings.Contains(string(after), `"maxSurge":0,"maxUnavailable":1`)
		if inPatch != test.want || rendered != test.want {
			t.Errorf("%s: the patch has it: %v, the rendered object: %s, want %v", name, inPatch, after, test.want)
		}
	}
}

func TestAFolderOfSeveralDriversHasItsStepsOnce(t *testing.T) {
	other := strings.NewReplacer("name: controller", "name: other", "app: controller", "app: other", "block.example.com", "file.example.com").Replace(manifest)
	text := string(adopt.Text(plans(t, manifest+"---\n"+other, adopt.Options{}), adopt.Arguments{Inputs: []string{"a.yaml"}}))
	for want, times := range map[string]int{"kubectl apply -k attach-hub-block-example-com/active": 1, "kubectl apply -k attach-hub-block-example-com/observe": 2,
		"until pods=$(kubectl -n storage get pods": 2, "preflight --driver file.example.com": 1, "rollout status deployment/other": 4} {
		if got := strings.Count(text, want+" ") + strings.Count(text, want+"\n"); got != times {
			t.Errorf("%q is there %d times, want %d:\n%s", want, got, times, text)
		}
	}
	if !strings.Contains(strings.Join(strings.Fields(text), " "), "This moves all drivers of the folder: block.example.com, file.example.com.") {
		t.Errorf("does not say that a step moves both drivers:\n%s", text)
	}
}

// The way back of a folder brings all its csi-attachers back. Without a Lease they would work beside an active hub.
func TestWorkloadsWithoutLeaderElectionAreAdoptedInARunEach(t *testing.T) {
	other := strings.NewReplacer("name: controller", "name: other", "block.example.com", "file.example.com").Replace(manifest)
	without := strings.Replace(manifest, "--leader-election, ", "", 1)
	for name, test := range map[string]struct {
		text string
		mode adopt.Mode
		want bool
	}{
		"one has none":   {without + "---\n" + other, adopt.ModeProxy, true},
		"both have":      {manifest + "---\n" + other, adopt.ModeProxy, false},
		"only one":       {without, adopt.ModeProxy, false},
		"in their place": {without + "---\n" + other, adopt.ModeDropIn, false},
	} {
		err := adopt.CheckTogether(plans(t, test.text, adopt.Options{Mode: test.mode, WithoutLeaderElection: true}))
		if got := err != nil && strings.Contains(err.Error(), "in a run of its own"); got != test.want {
			t.Errorf("%s: %v, want an error: %v", name, err, test.want)
		}
	}
}
