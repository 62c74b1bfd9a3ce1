package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheLastArgumentIsTheFolderOfAnOutputWithoutOne(t *testing.T) {
	for _, kind := range []string{"kustomize", "flux", "helm-plugin"} {
		t.Chdir(t.TempDir())
		if err := os.Mkdir("empty", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"out", "out", "empty"} { // the second time over its own files
			code, stdout, stderr := runWith(t, adoptable, "adopt", "-", "--image=example.com/hub:v1", "-o", kind, dir)
			if code != 0 || !strings.HasPrefix(stdout, dir+": ") {
				t.Errorf("-o %s %s: exit code %d, stdout %q, stderr %q", kind, dir, code, stdout, stderr)
			}
		}
		if got, want := tree(t, "empty"), strings.ReplaceAll(tree(t, "out"), "-- out/", "-- empty/"); got != want {
			t.Errorf("-o %s: the files differ:\n%s\n%s", kind, got, want)
		}
	}
}

func TestAnInputIsNeverTakenAsTheFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	writeTestFile(t, "manifest.yaml", adoptable)
	writeTestFile(t, "manifests/manifest.yaml", adoptable)
	before := tree(t, ".")
	for _, last := range []string{"manifest.yaml", "manifests", "absent.yaml", "deploy/controller", "-"} {
		code, stdout, stderr := runWith(t, adoptable, "adopt", "manifest.yaml", "-o", "kustomize", last)
		if code != exitUnadopted || stdout != "" || !strings.Contains(stderr, last) || !strings.Contains(stderr, "-o kustomize=DIR") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", last, code, stdout, stderr)
		}
	}
	if code, _, stderr := runWith(t, adoptable, "adopt", "-", "-o", "kustomize"); code != exitUnadopted || !strings.Contains(stderr, "-o kustomize=DIR") {
		t.Errorf("no folder: exit code %d, stderr %q", code, stderr)
	}
	if after := tree(t, "."); after != before {
		t.Errorf("files were written:\n%s", after)
	}
}
