package main

import (
	"strings"
	"testing"
)

// The second run would take the way back away.
func TestAdoptWritesNothingFromWhatItHasChanged(t *testing.T) {
	for mode, step := range map[string]string{"proxy": "observe", "sidecar-hub": "observe", "drop-in": "active"} {
		t.Chdir(t.TempDir())
		args := []string{"adopt", "-", "--image=registry.example.com/csi-attach-hub:v1", "--mode=" + mode}
		_, changed, _ := runWith(t, adoptable, append(args, "-o", "helm-post-renderer", "--step="+step)...)
		if code, _, stderr := runWith(t, adoptable, append(args, "-o", "kustomize=out")...); code != 0 {
			t.Fatal(stderr)
		}
		before := tree(t, "out")
		for _, output := range []string{"kustomize=out", "flux=out", "helm-plugin=out"} {
			code, _, stderr := runWith(t, changed, append(args, "-o", output)...)
			if code != exitUnadopted || !strings.Contains(stderr, "csi-attach-hub") || !strings.Contains(stderr, "pass the manifest from before adopt") {
				t.Errorf("%s, %s: exit code %d, %s", mode, output, code, stderr)
			}
		}
		if after := tree(t, "out"); after != before {
			t.Errorf("%s: the folder has changed:\n%s", mode, after)
		}
		if code, stdout, stderr := runWith(t, changed, append(args, "-o", "helm-post-renderer", "--step="+step)...); code != exitUnadopted || stdout != "" || stderr == "" {
			t.Errorf("%s: the post-renderer: exit code %d, %s", mode, code, stderr)
		}
	}
}
