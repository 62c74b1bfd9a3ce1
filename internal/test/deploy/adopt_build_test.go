package deploy_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// adopted writes the folder of adopt for a manifest, and returns its path.
func adopted(t *testing.T, manifest []byte, args ...string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "out")
	c := exec.CommandContext(t.Context(), hubBinary(t), append([]string{"adopt", "-", "--image=" + imageFor(args), "-o", "kustomize=" + folder}, args...)...)
	c.Stdin = bytes.NewReader(manifest)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

func documentsByName(t *testing.T, text []byte) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, document := range strings.Split("\n"+string(text), "\n---") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document+"\n"), &o.Object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if len(o.Object) > 0 {
			all[adoptKey(&o)] = plainContent(t, o.Object)
		}
	}
	return all
}

// built returns the objects of a kustomization.
func built(t *testing.T, folder string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, o := range build(t, folder) {
		all[adoptKey(o)] = plainContent(t, o.Object)
	}
	return all
}

func adoptKey(o *unstructured.Unstructured) string {
	return strings.Join([]string{o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
}

// plainContent has the same types whoever has read it.
func plainContent(t *testing.T, content any) any {
	t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// Each step changes the workload and nothing else, and the way back is the workload as it was.
func TestKustomizationsOfAdoptLeadToEachStepAndBack(t *testing.T) {
	for _, name := range []string{"ebs", "azuredisk", "daemonset", "digitalocean"} {
		t.Run(name, func(t *testing.T) {
			manifest := readFile(t, manifestOf(name))
			input, folder := documentsByName(t, manifest), adopted(t, manifest)
			original := built(t, filepath.Join(folder, "original"))
			for key, o := range original {
				if diff := cmp.Diff(input[key], o); diff != "" {
					t.Errorf("original: %s (-input +kustomize):\n%s", key, diff)
				}
			}
			for step, want := range map[string]bool{"observe": true, "active": false} {
				after := built(t, filepath.Join(folder, step))
				if !slices.Equal(slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(original))) {
					t.Errorf("%s: the objects are %q", step, slices.Sorted(maps.Keys(after)))
				}
				checkStep(t, after, want)
			}
		})
	}
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
	folder := adopted(t, release)
	render := func(input []byte, args ...string) (stdout, stderr string) {
		var out, problems bytes.Buffer
		c := exec.CommandContext(t.Context(), filepath.Join(folder, "post-renderer.sh"), args...)
		c.Stdin, c.Stdout, c.Stderr, c.Env = bytes.NewReader(input), &out, &problems, append(os.Environ(), env...)
		if err := c.Run(); err != nil && out.Len() > 0 {
			t.Errorf("%v, and it printed %s", err, &out)
		}
		return out.String(), problems.String()
	}
	input := documentsByName(t, release)
	for step, want := range map[string]bool{"observe": true, "active": false} {
		stdout, stderr := render(release, step)
		output := documentsByName(t, []byte(stdout))
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
		folder := adopted(t, manifest)
		own := bytes.ReplaceAll(manifest, []byte("\n  namespace: kube-system\n"), []byte("\n"))
		for name, content := range map[string]string{"own.yaml": string(own), "kustomization.yaml": "namespace: '" + namespace + "'\nresources: [own.yaml]\n"} {
			if err := os.WriteFile(filepath.Join(folder, "original", name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for step, want := range map[string]bool{"observe": true, "active": false} {
			all := built(t, filepath.Join(folder, step))
			key := "Deployment/" + namespace + "/ebs-csi-controller"
			if all[key] == nil {
				t.Fatalf("namespace %q, %s: the objects are %q", namespace, step, slices.Sorted(maps.Keys(all)))
			}
			checkStep(t, map[string]any{key: all[key]}, want)
		}
	}
}

// Two drivers in one Pod, and a List: what the manifests of single drivers do not have.
func TestKustomizationsOfAdoptHoldForSeveralDriversOfAPod(t *testing.T) {
	folder := adopted(t, readFile(t, "../internal/test/deploy/testdata/adopt-several.yaml"), "--driver=one-attacher=one.example.com", "--driver=two-attacher=two.example.com")
	for step, want := range map[string]string{"observe": "attach-hub-one-example-com attach-hub-two-example-com driver one-attacher two-attacher", "active": "attach-hub-one-example-com attach-hub-two-example-com driver"} {
		all := built(t, filepath.Join(folder, step))
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"Deployment/storage/controller"}) {
			t.Fatalf("%s: the objects are %q", step, got)
		}
		containers, _, _ := unstructured.NestedSlice(all["Deployment/storage/controller"].(map[string]any), "spec", "template", "spec", "containers")
		var names []string
		for _, c := range containers {
			names = append(names, c.(map[string]any)["name"].(string))
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: the containers are %s, want %s", step, got, want)
		}
	}
}
