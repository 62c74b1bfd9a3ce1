package main

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

const manifestFolder = "../../internal/adopt/testdata/manifests"

// adoptArgs are the arguments that the manifests need: what a user is asked for.
var adoptArgs = map[string][]string{
	"alibaba": {"--driver=external-disk-attacher=diskplugin.csi.alibabacloud.com",
		"--driver=external-oss-attacher=ossplugin.csi.alibabacloud.com"},
	"defaults": {"--driver=io.openebs.csi-mayastor"},
	"oci":      {"--driver=blockvolume.csi.oraclecloud.com"},
}

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
			test(t, name, append([]string{"adopt", name + ".yaml", "--image=registry.example.com/csi-attach-proxy:v1"}, adoptArgs[name]...))
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

// dropIn are the flags of the mode drop-in.
var dropIn = []string{"--mode=drop-in", "--image=registry.example.com/csi-attach-hub:v1"}

// The manifests have the shape of those of real drivers. Each golden file has all that is said about one of them, and what the
// patches have beyond the template.
func TestAdoptOfEachManifest(t *testing.T) {
	goldens := goldenFolder(t)
	template := string(readTestFile(t, "../../internal/adopt/templates/observe.yaml"))
	manifests(t, func(t *testing.T, name string, args []string) {
		proxy := transcript(args...)
		got := proxy + "-- drop-in --\n" + without(transcript(append(args, dropIn...)...), proxy)
		for _, flags := range [][]string{nil, dropIn} { // not a map: the order is that of the file
			write := slices.Concat(args, flags, []string{"-o", "kustomize=out"})
			transcript(write...)
			first := tree(t, "out")
			if transcript(write...); tree(t, "out") != first {
				t.Errorf("the second run differs:\n%s", cmp.Diff(first, tree(t, "out")))
			}
			for file := range strings.SplitSeq(first, "-- out/") {
				if path, content, _ := strings.Cut(file, "\n"); regexp.MustCompile(`^(observe|active)/patch`).MatchString(path) && !strings.Contains(content, "$patch") {
					got += "-- " + without(file, template)
				}
			}
			if err := os.RemoveAll("out"); err != nil {
				t.Fatal(err)
			}
		}
		compareAdopted(t, filepath.Join(goldens, name+".txt"), got)
	})
}

// without returns the lines of a text that another text does not have.
func without(text, other string) string {
	lines := strings.SplitAfter(other, "\n")
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(line string) bool { return slices.Contains(lines, line) }), "")
}

// One driver with a Lease, and one whose csi-attacher takes none: the steps differ.
func TestAdoptWritesAFolder(t *testing.T) {
	goldens := goldenFolder(t)
	manifests(t, func(t *testing.T, name string, args []string) {
		if name != "ebs" && name != "hetzner" {
			return
		}
		got := transcript(append(args, "-o", "kustomize=out")...)
		for file := range strings.SplitSeq(tree(t, "out"), "-- out/") {
			if path, _, _ := strings.Cut(file, " --"); name == "ebs" && (filepath.Base(path) == "kustomization.yaml" || path == "prepare.sh") {
				got += "-- " + file
			}
		}
		steps, _, _ := strings.Cut(string(readTestFile(t, "out/README.md")), "\n## What adopt has found") // which is in the other golden file
		compareAdopted(t, filepath.Join(goldens, name+".tree"), got+steps)
	})
}

// `go test -run DriversPage -update` writes the table.
func TestDriversPageShowsWhatAdoptSays(t *testing.T) {
	path, err := filepath.Abs("../../deploy/DRIVERS.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(readTestFile(t, path))
	table := "| manifest | driver | with a proxy | drop-in |\n|---|---|---|---|\n"
	fact := func(text, name string) string {
		found := regexp.MustCompile(`(?m)^` + name + ` +(.*(?:\n {17}[^- ].*)*)`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("no %s in\n%s", name, text)
		}
		return strings.Join(strings.Fields(found[1]), " ")
	}
	manifests(t, func(t *testing.T, name string, args []string) {
		proxy, replaced := transcript(args...), transcript(append(args, dropIn...)...)
		driver, _, _ := strings.Cut(fact(proxy, "Driver"), ",")
		verdict, _, _ := strings.Cut(fact(proxy, "Can be adopted"), ":")
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", name, driver, verdict, fact(replaced, "Can be adopted"))
	})
	before, rest, _ := strings.Cut(page, "<!-- adopt -->\n")
	_, after, _ := strings.Cut(rest, "<!-- /adopt -->\n")
	compareAdopted(t, path, before+"<!-- adopt -->\n"+table+"<!-- /adopt -->\n"+after)
}

func readTestFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
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

// tree returns all files of a folder, each behind its name. README.md repeats the text of adopt, so it is not among
// them.
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
