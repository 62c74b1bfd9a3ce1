package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const manifestFolder = "../../internal/adopt/testdata/manifests"

// adoptArgs are the arguments that the manifests need: what a user is asked for.
var adoptArgs = map[string][]string{}

// manifests calls test for each manifest in the shape of a driver's, in a folder of its own that has it as NAME.yaml.
func manifests(t *testing.T, test func(t *testing.T, name string, args []string)) {
	t.Helper()
	files, err := filepath.Glob(manifestFolder + "/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("manifests: %q, %v", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			writeTestFile(t, name+".yaml", string(content))
			test(t, name, append([]string{"adopt", name + ".yaml", "--image=registry.example.com/csi-attach-hub:v1"}, adoptArgs[name]...))
		})
	}
}

func writeTestFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// transcript runs the program, and returns what it prints and its exit code.
func transcript(args ...string) string {
	var stdout, stderr bytes.Buffer
	code := run(args, &stdout, &stderr)
	text := stdout.String()
	if stderr.Len() > 0 {
		text += "-- stderr --\n" + stderr.String()
	}
	return text + fmt.Sprintf("-- exit code %d --\n", code)
}

// compareAdopted compares a text with a golden file, which -update writes.
func compareAdopted(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		writeTestFile(t, golden, got)
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, run with -update if the new output is right (-want +got):\n%s", filepath.Base(golden), diff)
	}
}

func TestAdoptExplainsEachManifest(t *testing.T) {
	goldens := goldenFolder(t)
	manifests(t, func(t *testing.T, name string, args []string) {
		compareAdopted(t, filepath.Join(goldens, name+".txt"), transcript(args...))
	})
}

func TestAdoptWritesKustomizationsOfEachManifest(t *testing.T) {
	goldens := goldenFolder(t)
	manifests(t, func(t *testing.T, name string, args []string) {
		got := transcript(append(args, "-o", "kustomize=out")...) + tree(t, "out")
		if again := transcript(append(args, "-o", "kustomize=out")...) + tree(t, "out"); again != got {
			t.Errorf("the second run differs:\n%s", cmp.Diff(got, again))
		}
		compareAdopted(t, filepath.Join(goldens, name+".tree"), got)
	})
}

func TestAdoptWritesForOtherToolsAndModes(t *testing.T) {
	goldens := goldenFolder(t)
	manifests(t, func(t *testing.T, name string, args []string) {
		if name != "ebs" {
			return
		}
		for _, kind := range []string{"flux", "helm-plugin"} {
			got := transcript(append(args, "-o", kind+"="+kind)...) + tree(t, kind)
			compareAdopted(t, filepath.Join(goldens, name+"."+kind), got)
		}
		for _, mode := range []string{"drop-in", "sidecar-hub"} {
			compareAdopted(t, filepath.Join(goldens, name+"."+mode+".txt"), transcript(append(args, "--mode", mode)...))
		}
		transcript(append(args, "-o", "kustomize=out")...)
		readme, err := os.ReadFile("out/README.md")
		if err != nil {
			t.Fatal(err)
		}
		compareAdopted(t, filepath.Join(goldens, name+".readme"), string(readme))
		compareAdopted(t, filepath.Join(goldens, name+".json"), transcript(append(args, "-o", "json")...))
	})
}

// goldenFolder returns the folder of the golden files, as a path that holds in any folder.
func goldenFolder(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("testdata/adopt")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// tree returns all files of a folder, each behind its name. README.md repeats the text of adopt, so it is not among them.
func tree(t *testing.T, folder string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "README.md" {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		content, err := os.ReadFile(path)
		fmt.Fprintf(&b, "-- %s --\n%s", path, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
