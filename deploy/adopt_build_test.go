package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const adoptManifests = "../internal/adopt/testdata/manifests"

// adoptProgram is the program, and a manifest in the shape of a driver's.
type adoptProgram struct {
	t        *testing.T
	binary   string
	manifest []byte
}

// adoptEach calls test for each manifest.
func adoptEach(t *testing.T, test func(t *testing.T, p adoptProgram)) {
	t.Helper()
	binary := hubBinary(t)
	files, err := filepath.Glob(adoptManifests + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	seen, tested := 0, 0
	for _, file := range files {
		manifest := readFile(t, file)
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			seen++
			p := adoptProgram{t: t, binary: binary, manifest: manifest}
			if _, ok := p.run("-o", "json"); !ok {
				t.Skip("adopt says no")
			}
			tested++
			test(t, p)
		})
	}
	if seen == len(files) && tested < 5 { // -run can select
		t.Errorf("only %d of %d manifests can be adopted", tested, len(files))
	}
}

// run returns what adopt prints for the manifest, and whether every csi-attacher can be adopted.
func (p adoptProgram) run(args ...string) ([]byte, bool) {
	p.t.Helper()
	var stderr bytes.Buffer
	c := exec.CommandContext(p.t.Context(), p.binary, append([]string{"adopt", "-", "--image=registry.example.com/csi-attach-hub:v1"}, args...)...)
	c.Stdin, c.Stderr = bytes.NewReader(p.manifest), &stderr
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%v: %s", err, stderr.String())
	}
	return out, err == nil
}

// rendered returns the objects that the post-renderer prints.
func (p adoptProgram) rendered(step string) map[string]any {
	p.t.Helper()
	out, ok := p.run("-o", "helm-post-renderer", "--step", step)
	if !ok {
		p.t.Fatalf("the post-renderer failed at step %s", step)
	}
	return documentsByName(p.t, out)
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

// plainContent has the same types whoever has read it. Containers and volumes are sorted: kustomize puts new ones first,
// the post-renderer last.
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
	o, _ := plain.(map[string]any)
	for _, list := range []string{"containers", "volumes"} {
		items, _, _ := unstructured.NestedSlice(o, "spec", "template", "spec", list)
		if items == nil {
			continue
		}
		name := func(item any) string { return fmt.Sprint(item.(map[string]any)["name"]) }
		slices.SortFunc(items, func(a, b any) int { return strings.Compare(name(a), name(b)) })
		if err := unstructured.SetNestedSlice(o, items, "spec", "template", "spec", list); err != nil {
			t.Fatal(err)
		}
	}
	return plain
}

// addedTo returns the objects that are not among others.
func addedTo(objects, others map[string]any) map[string]any {
	rest := map[string]any{}
	for key, o := range objects {
		if _, is := others[key]; !is {
			rest[key] = o
		}
	}
	return rest
}

// changedFrom returns the objects that others have with another content.
func changedFrom(objects, others map[string]any) map[string]any {
	rest := map[string]any{}
	for key, o := range objects {
		if other, is := others[key]; is && !cmp.Equal(o, other) {
			rest[key] = o
		}
	}
	return rest
}

// kustomize and the post-renderer merge the patches with different code.
func TestKustomizationsOfAdoptBuildWhatThePostRendererPrints(t *testing.T) {
	adoptEach(t, func(t *testing.T, p adoptProgram) {
		input := documentsByName(t, p.manifest)
		out := filepath.Join(t.TempDir(), "out")
		p.run("-o", "kustomize="+out)
		for key, o := range built(t, filepath.Join(out, "original")) {
			if diff := cmp.Diff(input[key], o); diff != "" {
				t.Errorf("original: %s (-input +kustomize):\n%s", key, diff)
			}
		}
		for _, step := range []string{"observe", "active"} {
			rendered, want := p.rendered(step), map[string]any{}
			for _, part := range []map[string]any{addedTo(rendered, input), changedFrom(rendered, input)} {
				for key, o := range part {
					want[key] = o
				}
			}
			if diff := cmp.Diff(want, built(t, filepath.Join(out, step))); diff != "" {
				t.Errorf("%s (-post-renderer +kustomize):\n%s", step, diff)
			}
			if len(addedTo(input, rendered)) > 0 {
				t.Errorf("%s: the post-renderer has lost objects", step)
			}
		}
	})
}

func TestTheHubsComponentOfAdoptBuildsInAnOverlay(t *testing.T) {
	adoptEach(t, func(t *testing.T, p adoptProgram) {
		dir := t.TempDir()
		p.run("-o", "kustomize="+filepath.Join(dir, "out"))
		writeKustomization(t, dir, map[string]any{"components": []any{"out/hub"}})
		policies := 0
		for _, o := range build(t, dir) {
			if o.GetKind() != "NetworkPolicy" || o.GetNamespace() != "csi-attach-hub" {
				t.Errorf("has %s", adoptKey(o))
			}
			policies++
		}
		if policies == 0 {
			t.Error("has no NetworkPolicy")
		}
	})
}

// Flux applies the patches to what the chart renders, as kustomize does.
func TestPatchesForFluxMakeWhatThePostRendererPrints(t *testing.T) {
	adoptEach(t, func(t *testing.T, p adoptProgram) {
		input := documentsByName(t, p.manifest)
		dir := t.TempDir()
		p.run("-o", "flux="+filepath.Join(dir, "flux"))
		if err := os.WriteFile(filepath.Join(dir, "chart.yaml"), p.manifest, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, step := range []string{"observe", "active"} {
			var release struct {
				Spec struct {
					PostRenderers []struct {
						Kustomize struct {
							Patches []any `json:"patches"`
						} `json:"kustomize"`
					} `json:"postRenderers"`
				} `json:"spec"`
			}
			if err := yaml.UnmarshalStrict(readFile(t, filepath.Join(dir, "flux", step+".yaml")), &release); err != nil {
				t.Fatal(err)
			}
			writeKustomization(t, dir, map[string]any{"resources": []any{"chart.yaml"}, "patches": release.Spec.PostRenderers[0].Kustomize.Patches})
			rendered := p.rendered(step)
			added := addedTo(rendered, input)
			if diff := cmp.Diff(addedTo(rendered, added), built(t, dir)); diff != "" {
				t.Errorf("%s (-post-renderer +Flux):\n%s", step, diff)
			}
			if diff := cmp.Diff(added, built(t, filepath.Join(dir, "flux", "objects"))); diff != "" {
				t.Errorf("%s: objects (-post-renderer +Flux):\n%s", step, diff)
			}
		}
	})
}

func writeKustomization(t *testing.T, dir string, content map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Two drivers in one Pod, two workloads of one name, and a List: what the manifests of single drivers do not have.
func TestKustomizationsOfAdoptHoldForSeveralWorkloads(t *testing.T) {
	binary := hubBinary(t)
	p := adoptProgram{t: t, binary: binary, manifest: readFile(t, "testdata/adopt-several.yaml")}
	names := []string{"--driver=one-attacher=one.example.com", "--driver=two-attacher=two.example.com", "--driver=other-attacher=other.example.com"}
	out := filepath.Join(t.TempDir(), "out")
	if _, ok := p.run(append(names, "-o", "kustomize="+out)...); !ok {
		t.Fatal("adopt failed")
	}
	for _, step := range []string{"observe", "active"} {
		rendered, ok := p.run(append(names, "-o", "helm-post-renderer", "--step", step)...)
		if !ok {
			t.Fatal("the post-renderer failed")
		}
		if diff := cmp.Diff(documentsByName(t, rendered), built(t, filepath.Join(out, step))); diff != "" {
			t.Errorf("%s (-post-renderer +kustomize):\n%s", step, diff)
		}
	}
	var workloads []string
	for key := range built(t, filepath.Join(out, "active")) {
		if strings.HasPrefix(key, "Deployment/") {
			workloads = append(workloads, key)
		}
	}
	slices.Sort(workloads)
	if want := []string{"Deployment/other/controller", "Deployment/storage/controller"}; !slices.Equal(workloads, want) {
		t.Errorf("workloads are %q, want %q", workloads, want)
	}
}
