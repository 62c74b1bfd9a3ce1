package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// adoptable is a manifest with one csi-attacher, between documents that nobody may touch.
const adoptable = `# a comment before everything
---
# Source: example/templates/crd.yaml
apiVersion: apiextensions.k8s.io/v1
kind:   CustomResourceDefinition   # spaces stay
metadata: {name: examples.example.com}
---
# Source: example/templates/controller.yaml
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, namespace: storage}
spec:
  selector: {matchLabels: {app: controller}}
  template:
    metadata: {labels: {app: controller}}
    spec:
      containers:
        - name: driver
          image: example.com/driver:v1
          args: [--drivername=block.csi.example.com]
          volumeMounts: [{name: socket-dir, mountPath: /csi}]
        - name: csi-attacher
          image: registry.k8s.io/sig-storage/csi-attacher:v4.10.0
          args: [--csi-address=/csi/csi.sock, --leader-election]
          volumeMounts: [{name: socket-dir, mountPath: /csi}]
      volumes: [{name: socket-dir, emptyDir: {}}]
---
# Source: example/templates/csidriver.yaml
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: block.csi.example.com}
---
# Source: example/templates/hook.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: hook, annotations: {helm.sh/hook: post-install}}`

// runWith runs the program with a text on stdin.
func runWith(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdin")
	writeTestFile(t, path, stdin)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := os.Stdin
	os.Stdin = file
	defer func() { os.Stdin = before }()
	var out, errors bytes.Buffer
	code = run(args, &out, &errors)
	return code, out.String(), errors.String()
}

func TestThePostRendererLeavesOtherDocumentsByteForByte(t *testing.T) {
	for _, newline := range []string{"\n", "\r\n"} {
		input := strings.ReplaceAll(adoptable, "\n", newline)
		for _, step := range []string{"observe", "active"} {
			code, got, stderr := runWith(t, input, "adopt", "--image=example.com/hub:v1", "-o", "helm-post-renderer", "--step", step)
			if code != 0 || stderr != "" {
				t.Fatalf("%s: exit code %d, %s", step, code, stderr)
			}
			before, _, _ := strings.Cut(input, "apiVersion: apps/v1")
			if !strings.HasPrefix(got, before) {
				t.Errorf("%s: the documents before the workload differ:\n%s", step, got)
			}
			_, after, _ := strings.Cut(input, "emptyDir: {}}]")
			if !strings.Contains(got, strings.TrimLeft(after, "\r\n")+"\n---\n") {
				t.Errorf("%s: the documents behind the workload differ:\n%s", step, got)
			}
			if has := strings.Contains(got, "name: csi-attacher\n"); has != (step == "observe") {
				t.Errorf("%s: has csi-attacher: %t", step, has)
			}
			for _, want := range []string{"name: attach-hub-block-csi-example-com", "kind: Service\n", "kind: Certificate\n", "kind: Role\n"} {
				if !strings.Contains(got, want) {
					t.Errorf("%s: has no %q", step, want)
				}
			}
		}
	}
}

func TestThePostRendererPassesHooksAlone(t *testing.T) {
	hook := adoptable[strings.LastIndex(adoptable, "# Source:"):]
	code, got, stderr := runWith(t, hook, "adopt", "-", "-o", "helm-post-renderer", "--step", "active", "--image=example.com/hub:v1")
	if code != 0 || got != hook {
		t.Errorf("exit code %d, %s\n%s", code, stderr, got)
	}
}

// A sync has to fail: without the proxy, or with the step unknown, nobody would attach.
func TestThePostRendererPrintsNothingIfItCannotAddTheProxy(t *testing.T) {
	filter := []string{"adopt", "--image=example.com/hub:v1", "-", "-o", "helm-post-renderer", "--step", "active"}
	_, rendered, _ := runWith(t, adoptable, filter...)
	withoutAttacher := strings.ReplaceAll(strings.ReplaceAll(adoptable, "csi-attacher", "other"), "csi-address", "address")
	for name, test := range map[string]struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		"its own output":          {rendered, filter, exitUnadopted, "have a proxy"},
		"no csi-attacher":         {withoutAttacher, filter, exitUnadopted, "no csi-attacher"},
		"an empty input":          {"", filter, exitUnadopted, "no csi-attacher"},
		"no leader election":      {strings.ReplaceAll(adoptable, ", --leader-election", ""), filter, exitRefused, "--leader-election"},
		"no name of the driver":   {strings.ReplaceAll(strings.ReplaceAll(adoptable, "--drivername=block.csi.example.com", ""), "kind: CSIDriver", "kind: Other"), filter, exitRefused, "--driver"},
		"no step":                 {adoptable, filter[:5], exitUnadopted, "--step"},
		"an image of no registry": {adoptable, append(filter[:7:7], "--image=csi-attach-hub"), exitUnadopted, "--image registry.example.com/csi-attach-hub:v1"},
		"an unknown step":         {adoptable, append(filter[:5:5], "--step=paused"), exitUnadopted, "--step observe or --step active"},
		"a file":                  {adoptable, append([]string{"adopt", "file.yaml", "--image=example.com/hub:v1"}, filter[3:]...), exitUnadopted, "stdin only"},
		"no namespace":            {strings.ReplaceAll(adoptable, ", namespace: storage", ""), filter, exitUnadopted, "--namespace"},
		"what is no manifest":     {"a: [", filter, exitUnadopted, "document 1"},
		"a hostile driver's name": {adoptable, append(filter[:7:7], "--driver=$(reboot)"), exitUnadopted, "$(reboot)"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runWith(t, test.stdin, test.args...)
			if code != test.code || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d, want %d; stdout %q; stderr %q, want %q in it", code, test.code, stdout, stderr, test.want)
			}
		})
	}
}

func TestAdoptOverwritesNoFileOfTheUser(t *testing.T) {
	t.Chdir(t.TempDir())
	adopt := func() (int, string, string) { return runWith(t, adoptable, "adopt", "-", "-o", "kustomize=out") }
	writeTestFile(t, "out/drivers.yaml", "drivers: []\n")
	writeTestFile(t, "out/hub/networkpolicy.yaml", "mine\n")
	before := tree(t, "out")
	code, _, stderr := adopt()
	if code != exitUnadopted || !strings.Contains(stderr, "out/drivers.yaml: was not written") || !strings.Contains(stderr, "out/hub/networkpolicy.yaml: was not written") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if after := tree(t, "out"); after != before {
		t.Errorf("files were written:\n%s", after)
	}
}

func TestAdoptRemovesItsFilesOfAnEarlierRunOnly(t *testing.T) {
	t.Chdir(t.TempDir())
	const marker = "# Written by csi-attach-hub adopt.\n"
	writeTestFile(t, "out/observe/deployment.storage.old.yaml", marker)
	writeTestFile(t, "out/objects/objects.yaml", marker)
	writeTestFile(t, "out/observe/mine.yaml", "mine\n")
	writeTestFile(t, "out/other-driver/drivers.yaml", marker)
	code, stdout, stderr := runWith(t, adoptable, "adopt", "-", "-o", "kustomize=out")
	if code != 0 || !strings.Contains(stdout, "2 of an earlier run removed") {
		t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
	}
	for path, want := range map[string]bool{
		"out/observe/deployment.storage.old.yaml": false, "out/objects": false,
		"out/observe/mine.yaml": true, "out/other-driver/drivers.yaml": true, "out/README.md": true,
		"out/observe/deployment.storage.controller.yaml": true,
	} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", path, err == nil, want)
		}
	}
	unfinished, err := filepath.Glob("out/*/*.adopt-unfinished")
	if err != nil || len(unfinished) > 0 {
		t.Errorf("left behind: %q, %v", unfinished, err)
	}
}

func TestAdoptLeavesTheUsersOwnBaseAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	const own = "resources: [../../base]\n"
	writeTestFile(t, "out/original/kustomization.yaml", own)
	code, stdout, stderr := runWith(t, adoptable, "adopt", "-", "-o", "kustomize=out")
	if code != 0 || !strings.Contains(stdout, "original is yours") {
		t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
	}
	got, err := os.ReadFile("out/original/kustomization.yaml")
	if err != nil || string(got) != own {
		t.Errorf("is %q, %v", got, err)
	}
	if _, err := os.Stat("out/original/manifest.yaml"); err == nil {
		t.Error("original/manifest.yaml was written")
	}
}

func TestWorkloadsOfOneNameInTwoNamespacesHaveFilesOfTheirOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	other := strings.ReplaceAll(adoptable, "namespace: storage", "namespace: other")
	other = strings.ReplaceAll(strings.ReplaceAll(other, "block.csi.example.com", "file.csi.example.com"), "name: csi-attacher", "name: file-attacher")
	code, stdout, stderr := runWith(t, adoptable+"\n---\n"+other, "adopt", "-", "-o", "kustomize=out",
		"--driver=csi-attacher=block.csi.example.com", "--driver=file-attacher=file.csi.example.com")
	if code != 0 {
		t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
	}
	for _, path := range []string{"out/active/deployment.storage.controller.yaml", "out/active/deployment.other.controller.yaml"} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestAdoptTellsANoFromBadInput(t *testing.T) {
	t.Chdir(t.TempDir())
	refused := strings.ReplaceAll(adoptable, ", --leader-election", "")
	for _, output := range []string{"text", "json", "kustomize=out", "flux=out"} {
		for stdin, want := range map[string]int{adoptable: 0, refused: exitRefused, "kind: List": exitUnadopted} {
			if code, stdout, stderr := runWith(t, stdin, "adopt", "-", "-o", output); code != want {
				t.Errorf("-o %s: exit code %d, want %d: %s%s", output, code, want, stdout, stderr)
			}
		}
	}
}

func TestAdoptPrintsPlansAsData(t *testing.T) {
	_, stdout, stderr := runWith(t, strings.ReplaceAll(adoptable, "--leader-election]", "--leader-election, --timeout=3m, --unheard-of]"), "adopt", "-", "-o", "json")
	var got struct {
		Attachers []struct {
			Driver       string
			Adoptable    bool
			Reasons      []string
			Settings     []struct{ Key, Value, Flag string }
			UnknownFlags []string
			Proxy        struct{ Endpoint, Entry string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got.Attachers) != 1 {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	a := got.Attachers[0]
	if !a.Adoptable || a.Reasons == nil || a.Driver != "block.csi.example.com" || !slices.Equal(a.UnknownFlags, []string{"--unheard-of"}) ||
		len(a.Settings) != 1 || a.Settings[0].Key != "timeout" || a.Proxy.Endpoint != "tcp://attach-hub-block-csi-example-com.storage.svc:9443" {
		t.Errorf("got %+v", a)
	}
}

func TestTextsOfManifestsCannotActOnTheTerminal(t *testing.T) {
	hostile := strings.ReplaceAll(adoptable, "mountPath: /csi}", `mountPath: "/csi\e[31m\n1. run this"}`)
	hostile = strings.ReplaceAll(hostile, "/csi/csi.sock", `"/csi\e[31m\n1. run this/csi.sock"`)
	_, stdout, stderr := runWith(t, hostile, "adopt", "-")
	if strings.Contains(stdout+stderr, "\x1b") || strings.Contains(stdout+stderr, "\n1. run this") {
		t.Errorf("printed:\n%s%s", stdout, stderr)
	}
}

func TestCommandsOfTheTextRepeatTheFlags(t *testing.T) {
	_, stdout, _ := runWith(t, adoptable, "adopt", "-", "--image=registry.example.com/hub;reboot:v1", "--node-cidr=10.0.0.0/8")
	for _, want := range []string{
		"csi-attach-hub adopt - '--image=registry.example.com/hub;reboot:v1' --node-cidr=10.0.0.0/8 -o kustomize=",
		"--post-renderer-args='--image=registry.example.com/hub;reboot:v1'", "--post-renderer-args=--node-cidr=10.0.0.0/8",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("has no %q:\n%s", want, stdout)
		}
	}
}

// The deployer of Longhorn has no csi-attacher: its logs are in the Deployment that it makes, with all its flags.
func TestDropInLeavesFlagsAndFindsTheLogsOfLonghorn(t *testing.T) {
	code, stdout, stderr := runWith(t, "", "adopt", manifestFolder+"/longhorn.yaml", "--mode=drop-in")
	if code != 0 || !strings.Contains(stdout, "logs deployment/csi-attacher -c csi-attacher") || strings.Contains(stdout, "not carried over") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}
