package main

import (
	"os"
	"strings"
	"testing"
)

// A policy or a right for the hub of another namespace would keep the right hub out.
func TestAllThatAdoptWritesIsForTheHubOfTheNamespace(t *testing.T) {
	t.Chdir(t.TempDir())
	given := []string{"adopt", "-", "--image=registry.example.com/hub:v1", "--secret=login", "--hub-namespace=storage-hub"}
	_, text, stderr := runWith(t, adoptable, given...)
	for _, want := range []string{"kubectl -n storage-hub get secret", "kubectl -n storage-hub exec deploy/csi-attach-hub", "csi-attach-hub status --hub-namespace=storage-hub -o json",
		"--post-renderer-args=--hub-namespace=storage-hub", "adopt - --hub-namespace=storage-hub "} {
		if !strings.Contains(text, want) {
			t.Errorf("the text has no %q:\n%s%s", want, text, stderr)
		}
	}
	for _, kind := range []string{"kustomize", "flux", "helm-plugin"} {
		if code, _, stderr := runWith(t, adoptable, append(given, "-o", kind+"="+kind)...); code != 0 {
			t.Fatalf("-o %s: exit code %d, %s", kind, code, stderr)
		}
	}
	readme, err := os.ReadFile("kustomize/README.md")
	if err != nil {
		t.Fatal(err)
	}
	all := text + tree(t, ".") + string(readme)
	for _, not := range []string{"-n csi-attach-hub", "namespace: csi-attach-hub", "metadata.name: csi-attach-hub", "csi-attach-hub status\n", "csi-attach-hub status -o"} {
		if strings.Contains(all, not) {
			t.Errorf("has %q", not)
		}
	}
	for want, n := range map[string]int{"    namespace: storage-hub\n": 2, "metadata.name: storage-hub\n": 2, "  namespace: storage-hub\n": 4, "--hub-namespace=storage-hub\n": 1} {
		if got := strings.Count(all, want); got < n {
			t.Errorf("has %q %d times, want %d at least", want, got, n)
		}
	}
}

// The manifests of two drivers and one folder: the second run removed what the first had written.
func TestAdoptKeepsTheOutputOfAnotherDriver(t *testing.T) {
	other := strings.ReplaceAll(adoptable, "block.csi", "file.csi")
	for _, kind := range []string{"kustomize", "flux", "helm-plugin"} {
		t.Chdir(t.TempDir())
		write := []string{"adopt", "-", "--image=example.com/hub:v1", "-o", kind + "=out"}
		if code, _, stderr := runWith(t, other, write...); code != 0 {
			t.Fatalf("-o %s: exit code %d, %s", kind, code, stderr)
		}
		before := tree(t, "out")
		code, stdout, stderr := runWith(t, adoptable, write...)
		for _, want := range []string{"out/drivers.yaml: ", "the output for file.csi.example.com", "this run is for block.csi.example.com", "another folder, such as attach-hub-block-csi-example-com"} {
			if code != exitUnadopted || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("-o %s: exit code %d, %s, %q is not in %s", kind, code, stdout, want, stderr)
			}
		}
		if after := tree(t, "out"); after != before {
			t.Errorf("-o %s: files have changed", kind)
		}
	}
}
