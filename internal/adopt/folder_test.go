package adopt

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"
)

var podsPath = regexp.MustCompile(`(?s)get pods .*? -o jsonpath='([^']+)'`)

// The check must name a Pod while it is there, whatever else it has, and nothing else: it decides when the hub works.
func TestTheCheckPrintsThePodsThatStillHaveAnAttacher(t *testing.T) {
	text := readmeOf(t, manifest, Options{})
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
	for _, mode := range Modes {
		text := readmeOf(t, set, Options{Mode: mode})
		if strings.Contains(text, "rollout status") || strings.Contains(text, "replaced once") || !strings.Contains(text, "kubectl -n storage delete pod -l app=controller") {
			t.Errorf("mode %s: the Pods are not replaced:\n%s", mode, text)
		}
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
		p := onlyPlan(t, changed(t, test.change...), Options{})
		files, err := Kustomize([]Plan{p}, "out")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(files["observe/patch.yaml"]), "maxSurge: 0,"); got != test.want {
			t.Errorf("%s: the patch has it: %v, want %v", name, got, test.want)
		}
	}
}

// The way back of a folder brings all its csi-attachers back. Without a Lease they would work beside an active hub.
func TestAFolderIsForOneWorkload(t *testing.T) {
	other := strings.NewReplacer("name: controller", "name: other", "block.example.com", "file.example.com").Replace(manifest)
	_, err := Kustomize(plans(t, manifest+"---\n"+other, Options{}), "out")
	if err == nil || !strings.Contains(err.Error(), "document 1 (Deployment controller) and file.yaml: document 2 (Deployment other): a folder is for one workload") {
		t.Error(err)
	}
}

// With its resourceVersion, each step would be in conflict with the one before.
func TestTheWayBackOfAManifestFromTheClusterCanBeApplied(t *testing.T) {
	files, err := Kustomize(plans(t, changed(t, "  namespace: storage\n", "  namespace: storage\n  resourceVersion: '7'\n"), Options{}), "out")
	if original := string(files["original/manifest.yaml"]); err != nil || strings.Contains(original, "resourceVersion") || !strings.Contains(original, "namespace: storage") {
		t.Errorf("%v: %s", err, original)
	}
}

// readmeOf returns README.md of the folder for a manifest.
func readmeOf(t *testing.T, manifest string, o Options) string {
	t.Helper()
	files, err := Kustomize(plans(t, manifest, o), "out")
	if err != nil {
		t.Fatal(err)
	}
	return string(files["README.md"])
}

func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, part := range parts {
		_, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("%q is missing, or too early:\n%s", part, text)
		}
		rest = after
	}
}

// Two attachers must never work at once, and no step may need what csi-attacher has no right to.
func TestStepsWithoutLeaderElectionEndCsiAttacherFirstAndPauseTheHubFirstOnTheWayBack(t *testing.T) {
	without := changed(t, "--leader-election,", "")
	text := readmeOf(t, without, Options{})
	inOrder(t, text, "step observe", "step active", "until pods=$(kubectl -n storage get pods -l app=controller", "See that nobody else attaches", ".observed'",
		"`mode: observe` to `mode: active`", "kubectl -n csi-attach-hub get lease", "`mode: paused`", "`Paused`", "step observe", "`mode: observe`", "step original")
	for _, mode := range Modes { // the release as the chart makes it brings csi-attacher back
		readme := readmeOf(t, strings.Replace(without, "  namespace: storage\n", "  namespace: storage\n  labels: {heritage: Helm}\n", 1), Options{Mode: mode})
		inOrder(t, readme, "An upgrade without the post-renderer brings csi-attacher back", "No Lease keeps the two apart: follow the way back before it.")
	}
	p := onlyPlan(t, without, Options{})
	if got, err := Text([]Plan{p}); err != nil || !strings.Contains(got, "yes, in this order: observe, end csi-attacher, see that nobody else attaches, activate\n") {
		t.Errorf("%s, %v", got, err)
	}
	inOrder(t, readmeOf(t, manifest, Options{}), "`mode: observe` to `mode: active`", "step active", "until pods=", "## 5. The way back", "step observe", "`mode: observe`")
}

func TestStepsWithCertificatesOfTheUserNameNoOtherSecret(t *testing.T) {
	files, err := Kustomize(plans(t, manifest, Options{OwnSecrets: true}), "out")
	if err != nil {
		t.Fatal(err)
	}
	text := string(files["README.md"]) + string(files["prepare.sh"])
	if strings.Contains(text, "attach-hub-block-example-com-ca") || strings.Contains(text, "cert-manager must run") {
		t.Errorf("names a CA that is not made:\n%s", text)
	}
	inOrder(t, text, "the Secret `attach-hub-block-example-com-tls` in", "`block.example.com.crt` in this folder", "make the ConfigMap `attach-hub-ca` there too", "get configmap attach-hub-ca # you have made it", "give csi-attach-hub csi-attach-hub-driver-cas block.example.com.crt block.example.com.crt")
}

func TestStepsNameWhoMakesTheWorkload(t *testing.T) {
	for want, change := range map[string][]string{"Helm (": labelled("app.kubernetes.io/managed-by: Helm"), "Argo CD (": annotated("argocd.argoproj.io/tracking-id: a"),
		"Flux (": labelled("helm.toolkit.fluxcd.io/name: r")} {
		inOrder(t, readmeOf(t, changed(t, change...), Options{}), want, " makes this object, and undoes changes by\n`kubectl apply`", "## 1. Observe")
	}
}

// A rolling update starts the new Pod before the old one is gone.
func TestImagesAreReplacedAfterCsiAttacherWithoutLeaderElectionHasEnded(t *testing.T) {
	without := changed(t, "--leader-election,", "")
	inOrder(t, readmeOf(t, without, Options{Mode: ModeDropIn}), "kubectl -n storage scale deployment/controller --replicas=0 &&", "kubectl -n storage wait --for=delete pod -l app=controller",
		"kubectl apply -k out/", "kubectl -n storage scale deployment/controller --replicas=1 &&", "step active", "## 3. The way back", "step original")
	if readme := readmeOf(t, without, Options{}); strings.Contains(readme, " scale ") {
		t.Errorf("a proxy: %s", readme)
	}
	for name, text := range map[string]string{"a Lease": manifest, "Recreate": strings.Replace(without, "  replicas: 1", "  strategy: {type: Recreate}\n  replicas: 1", 1), "StatefulSet": strings.Replace(without, "Deployment", "StatefulSet", 1)} {
		if readme := readmeOf(t, text, Options{Mode: ModeDropIn}); strings.Contains(readme, " scale ") {
			t.Errorf("%s: %s", name, readme)
		}
	}
}

func TestStepsOfSeveralCsiAttachersFollowTheSlowest(t *testing.T) {
	first := onlyPlan(t, manifest, Options{Mode: ModeDropIn})
	second := first
	second.Flags.LeaderElection, second.Flags.LeaseDuration = false, time.Minute
	f := folder{Plan: first, Plans: []Plan{first, second, first}}
	if wait := f.LeaseWait(); !f.Overlaps() || wait != "1m" {
		t.Errorf("the Pods may overlap: %t; the Leases last %s", !f.Overlaps(), wait)
	}
}

// The Pod is ready while all containers are.
func TestDriversOfOnePodDoNotShareTheirReadiness(t *testing.T) {
	const line = "publishNotReadyAddresses: true"
	for name, want := range map[string]int{"ebs": 0, "alibaba": 2} {
		files, err := Kustomize(plansFor(t, name, Options{Mode: ModeProxy}), "out")
		if got := strings.Count(string(files["objects/objects.yaml"]), line); err != nil || got != want {
			t.Errorf("%s: %d Services have %s, want %d; %v", name, got, line, want, err)
		}
	}
}
