package deploy_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/postrenderer"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// adopted writes the folder of adopt for a manifest, and returns its path.
func adopted(t *testing.T, manifest string) string {
	t.Helper()
	binary, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "out")
	if out, err := exec.CommandContext(t.Context(), binary, "adopt", manifestOf(manifest), "--image=proxy:v1", "-o", "kustomize="+folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

// checkStep checks that a workload has the proxy, and csi-attacher or not.
func checkStep(t *testing.T, objects map[string]any, attacher bool) {
	t.Helper()
	for key, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		hasAttacher, hasProxy := bytes.Contains(text, []byte("name: csi-attacher\n")), bytes.Contains(text, []byte("name: attach-hub-"))
		if hasAttacher != attacher || !hasProxy {
			t.Errorf("%s: has csi-attacher: %t, want %t; has the proxy: %t", key, hasAttacher, attacher, hasProxy)
		}
	}
}

// Helm passes a whole release through the folder.
func TestTheFolderOfAdoptIsAPostRendererOfHelm(t *testing.T) {
	env, err := testbed.Shared(t).LinkKubectl(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	release := readFile(t, manifestOf("ebs"))
	folder := adopted(t, "ebs")
	helm := cli.New()
	helm.PluginsDirectory = filepath.Dir(folder)
	for _, variable := range env { // for the plugin
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	render := func(input []byte, args ...string) (stdout, stderr string) {
		var out, problems bytes.Buffer
		c := exec.CommandContext(t.Context(), filepath.Join(folder, "post-renderer.sh"), args...)
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(input), &out, &problems
		if err := c.Run(); err != nil && out.Len() > 0 {
			t.Errorf("%v, and it printed %s", err, &out)
		}
		return out.String(), problems.String()
	}
	input := byName(t, decoded(t, release))
	stdout, stderr := render(release, "original")
	if diff := cmp.Diff(input, byName(t, decoded(t, []byte(stdout)))); diff != "" {
		t.Errorf("original: %s (-input +output):\n%s", stderr, diff)
	}
	for step, want := range map[string]bool{"observe": true, "active": false} {
		stdout, stderr := render(release, step)
		plugin, err := postrenderer.NewPostRendererPlugin(helm, "attach-hub-ebs-csi-aws-com", step)
		if err != nil {
			t.Fatal(err)
		}
		if rendered, err := plugin.Run(bytes.NewBuffer(slices.Clone(release))); err != nil || rendered.String() != stdout {
			t.Errorf("%s: the plugin of Helm 4: %v: %s", step, err, rendered)
		}
		output := byName(t, decoded(t, []byte(stdout)))
		if !slices.Equal(slices.Sorted(maps.Keys(output)), slices.Sorted(maps.Keys(input))) {
			t.Fatalf("%s: the objects are %q; %s", step, slices.Sorted(maps.Keys(output)), stderr)
		}
		changed := map[string]any{}
		for key, o := range output {
			if !cmp.Equal(o, input[key]) {
				changed[key] = o
			}
		}
		if len(changed) != 1 {
			t.Errorf("%s: %d objects have changed", step, len(changed))
		}
		checkStep(t, changed, want)
	}
	if _, stderr := render(bytes.ReplaceAll(release, []byte("name: csi-attacher"), []byte("name: other"))); !strings.Contains(stderr, "the step is missing: observe or active") {
		t.Errorf("without a step: %s", stderr)
	}
	if _, stderr := render(bytes.ReplaceAll(release, []byte("name: csi-attacher"), []byte("name: other")), "active"); !strings.Contains(stderr, "has no container csi-attacher") {
		t.Errorf("another container: %s", stderr)
	}
}

// A base in Git often gets its namespace only from an overlay, or from kubectl.
func TestPatchesOfAdoptHoldForABaseWithoutANamespace(t *testing.T) {
	manifest := readFile(t, manifestOf("ebs"))
	for _, namespace := range []string{"", "elsewhere"} {
		folder := adopted(t, "ebs")
		own := bytes.ReplaceAll(manifest, []byte("\n  namespace: kube-system\n"), []byte("\n"))
		for name, content := range map[string]string{"own.yaml": string(own), "kustomization.yaml": "namespace: '" + namespace + "'\nresources: [own.yaml]\n"} {
			if err := os.WriteFile(filepath.Join(folder, "original", name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for step, want := range map[string]bool{"observe": true, "active": false} {
			all := byName(t, build(t, filepath.Join(folder, step)))
			key := "Deployment " + namespace + "/ebs-csi-controller"
			if all[key] == nil {
				t.Fatalf("namespace %q, %s: the objects are %q", namespace, step, slices.Sorted(maps.Keys(all)))
			}
			checkStep(t, map[string]any{key: all[key]}, want)
		}
	}
}
