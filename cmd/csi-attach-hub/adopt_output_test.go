package main

import (
	"bytes"
	"os"
	"path/filepath"
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

func TestAdoptOverwritesNoFileOfTheUser(t *testing.T) {
	t.Chdir(t.TempDir())
	adopt := func() (int, string, string) { return runWith(t, adoptable, "adopt", "-", "-o", "kustomize=out") }
	writeTestFile(t, "out/prepare.sh", "exit\n")
	writeTestFile(t, "out/hub/block.csi.example.com.yaml", "mine\n")
	before := tree(t, "out")
	code, _, stderr := adopt()
	if code != 1 || !strings.Contains(stderr, "out/prepare.sh: was not written") || !strings.Contains(stderr, "out/hub/block.csi.example.com.yaml: was not written") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if after := tree(t, "out"); after != before {
		t.Errorf("files were written:\n%s", after)
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

func TestAdoptEndsWithOneIfACsiAttacherCannotBeAdopted(t *testing.T) {
	t.Chdir(t.TempDir())
	refused := strings.ReplaceAll(adoptable, "csi-attacher:v4.10.0", "csi-attacher:v1.2.1")
	for _, output := range []string{"text", "kustomize=out"} {
		for stdin, want := range map[string]int{adoptable: 0, refused: 1, "kind: List": 1} {
			if code, stdout, stderr := runWith(t, stdin, "adopt", "-", "-o", output); code != want || code != 0 && (stdin == refused && output == "text") != (stderr == "") {
				t.Errorf("-o %s: exit code %d, want %d: %s%s", output, code, want, stdout, stderr)
			}
		}
	}
	for args, want := range map[string]int{"adopt": exitUsage, "adopt - -o kustomize": exitUsage, "adopt - -o kustomize=": exitUsage, "adopt - -o json": exitUsage, "adopt - --unknown": exitUsage,
		"adopt - --mode=sidecar-hub": exitUsage, "adopt absent.yaml": exitUsage} {
		if code, stdout, stderr := runWith(t, adoptable, strings.Fields(args)...); code != want || stdout != "" || stderr == "" {
			t.Errorf("%q: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
}

func TestAdoptSaysHowAFolderBecomesManifests(t *testing.T) {
	t.Chdir(t.TempDir())
	writeTestFile(t, "chart/Chart.yaml", "name: driver\n")
	writeTestFile(t, "overlay/kustomization.yaml", "resources: [controller.yaml]\n")
	writeTestFile(t, "files/controller.yaml", adoptable)
	helm, kustomize := "is no manifest: pass what `helm template RELEASE chart -n NAMESPACE` prints", "is no manifest: pass what `kubectl kustomize overlay` prints"
	for input, want := range map[string]string{"chart": helm, "chart/Chart.yaml": helm, "overlay": kustomize, "overlay/kustomization.yaml": kustomize, "files": "is a folder: pass the files in it"} {
		if code, stdout, stderr := runWith(t, "", "adopt", input); code != 1 || stdout != "" || !strings.Contains(stderr, input+": "+want) {
			t.Errorf("%s: exit code %d, %s%s", input, code, stdout, stderr)
		}
	}
}

// The second run would take the way back away.
func TestAdoptWritesNothingFromWhatItHasChanged(t *testing.T) {
	attacher := "image: registry.k8s.io/sig-storage/csi-attacher:v4.10.0"
	for mode, changed := range map[string]string{
		"proxy":   strings.Replace(adoptable, "        - name: csi-attacher", "        - {name: attach-hub-block-csi-example-com, image: hub}\n        - name: csi-attacher", 1),
		"drop-in": strings.Replace(adoptable, attacher, "image: registry.example.com/csi-attach-hub:v2", 1),
	} {
		t.Chdir(t.TempDir())
		args := []string{"adopt", "-", "--image=registry.example.com/csi-attach-hub:v1", "--mode=" + mode, "-o", "kustomize=out"}
		if code, _, stderr := runWith(t, adoptable, args...); code != 0 {
			t.Fatal(stderr)
		}
		before := tree(t, "out")
		code, _, stderr := runWith(t, changed, args...)
		if code != 1 || !strings.Contains(stderr, "is csi-attach-hub already: pass the manifest from before adopt") {
			t.Errorf("%s: exit code %d, %s", mode, code, stderr)
		}
		if after := tree(t, "out"); after != before {
			t.Errorf("%s: the folder has changed:\n%s", mode, after)
		}
	}
}

// A policy or a right for the hub of another namespace would keep the right hub out.
func TestAllThatAdoptWritesIsForTheHubOfTheNamespace(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, _, stderr := runWith(t, adoptable, "adopt", "-", "--image=registry.example.com/hub:v1", "--secret=login", "--hub-namespace=storage-hub", "-o", "kustomize=out"); code != 0 {
		t.Fatal(stderr)
	}
	all := tree(t, ".") + string(readTestFile(t, "out/README.md"))
	for _, not := range []string{"-n csi-attach-hub", "namespace: csi-attach-hub", "metadata.name: csi-attach-hub", "csi-attach-hub status\n", "csi-attach-hub status -o"} {
		if strings.Contains(all, not) {
			t.Errorf("has %q", not)
		}
	}
	for _, want := range []string{"metadata.name: storage-hub\n", "save storage-hub csi-attach-hub-ca", "explain driver/block.csi.example.com --hub-namespace=storage-hub\n"} {
		if !strings.Contains(all, want) {
			t.Errorf("has no %q", want)
		}
	}
}

// The manifests of two drivers and one folder: the second run would remove what the first has written.
func TestAdoptKeepsTheOutputOfAnotherDriver(t *testing.T) {
	t.Chdir(t.TempDir())
	write := []string{"adopt", "-", "--image=example.com/hub:v1", "-o", "kustomize=out"}
	if code, _, stderr := runWith(t, strings.ReplaceAll(adoptable, "block.csi", "file.csi"), write...); code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	before := tree(t, "out")
	code, stdout, stderr := runWith(t, adoptable, write...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, "out/hub/file.csi.example.com.yaml: the folder is for this driver") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	if after := tree(t, "out"); after != before {
		t.Errorf("files have changed:\n%s", after)
	}
}

func TestAdoptOfInputWithoutCsiAttacherSaysWhoMayMakeIt(t *testing.T) {
	for input, want := range map[string]string{
		strings.NewReplacer("csi-attacher:v4.10.0", "operator:v1", "name: csi-attacher", "name: operator", "--csi-address", "--address", "name: controller,", "name: trident-operator,").Replace(adoptable): "set the variable TRIDENT_CSI_SIDECAR_ATTACHER_IMAGE of the Deployment trident-operator to",
		"{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: file.example.com}, spec: {attachRequired: false}}":                                                                               "CSIDriver file.example.com has attachRequired: false: its volumes need no csi-attacher, and no hub",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}": "an operator may make it: deploy/DRIVERS.md has the settings",
	} {
		if code, stdout, stderr := runWith(t, input, "adopt", "-"); code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, want %s:\n%s%s", code, want, stdout, stderr)
		}
	}
}
