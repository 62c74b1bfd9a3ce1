package deploy_test

import (
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// table returns the rows of the tables below a heading of OPERATE.md: the words in the
// first column, each with the other columns as they are.
func table(t *testing.T, heading string) map[string][]string {
	t.Helper()
	_, below, found := strings.Cut(string(readFile(t, "OPERATE.md")), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("OPERATE.md has no heading %q", heading)
	}
	below, _, _ = strings.Cut(below, "\n## ")
	rows := map[string][]string{}
	for line := range strings.Lines(below) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 2 || !strings.HasPrefix(cells[0], " `") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		for _, word := range words(cells[0]) {
			if rows[word] != nil {
				t.Errorf("OPERATE.md has %s twice", word)
			}
			rows[word] = cells[1:]
		}
	}
	return rows
}

// words are those between backquotes.
func words(cell string) []string {
	var all []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// inSource returns what a pattern finds in files of the program.
func inSource(t *testing.T, pattern string, files ...string) []string {
	t.Helper()
	var all []string
	for _, file := range files {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(readFile(t, file), -1) {
			all = append(all, string(m[1]))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestEveryMetricIsDocumentedWithItsLabels(t *testing.T) {
	want := map[string][]string{}
	for _, series := range seriesOfTheHub(t) {
		name := strings.TrimSuffix(series.Get(model.MetricNameLabel), "_bucket")
		if !own.MatchString(name) || strings.HasSuffix(name, "_seconds_sum") || strings.HasSuffix(name, "_seconds_count") {
			continue
		}
		want[name] = []string{}
		series.Range(func(l labels.Label) {
			if !slices.Contains(append(targetLabels, "le", model.MetricNameLabel), l.Name) {
				want[name] = append(want[name], l.Name)
			}
		})
	}
	got := map[string][]string{}
	for name, cells := range table(t, "Metrics") {
		got[name] = append([]string{}, words(cells[0])...)
		slices.Sort(got[name])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-program +OPERATE.md):\n%s", diff)
	}
}

func TestEveryAlertIsDocumented(t *testing.T) {
	want, got := map[string]string{}, map[string]string{}
	for _, group := range readRules(t).Spec.Groups {
		for _, r := range group.Rules {
			if r.Alert != "" {
				want[r.Alert] = r.Labels["severity"]
			}
		}
	}
	for name, cells := range table(t, "Alerts") {
		got[name] = cells[0]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alerts with severity (-rules.yaml +OPERATE.md):\n%s", diff)
	}
}

func TestEveryPathStateAndVerdictIsDocumented(t *testing.T) {
	for heading, want := range map[string][]string{
		"HTTP API": append(inSource(t, `HandleFunc\("(/api/[^"]+)"`, "../hub/status/site.go"),
			inSource(t, `q\.Get\("(\w+)"\)`, "../hub/status/api.go")...),
		"Probes":             inSource(t, `"(/(?:livez|readyz|healthz)[^"]*)"`, "../internal/probes/probes.go"),
		"explain":            inSource(t, `Verdict = "(\w+)"`, "../hub/diagnosis/verdict.go"),
		"States of a driver": inSource(t, `\tState\w+ += "(\w+)"`, "../hub/status/driver_health.go"),
	} {
		rows := table(t, heading)
		if len(want) == 0 {
			t.Errorf("%s: nothing found in the program", heading)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(rows))); diff != "" {
			t.Errorf("%s (-program +OPERATE.md):\n%s", heading, diff)
		}
	}
}

// eachDocument calls check with the path of every Markdown file of the repository.
func eachDocument(t *testing.T, check func(path string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", ".cache"}, d.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			check(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	links := 0
	eachDocument(t, func(path string) {
		for _, m := range regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)"\s]+)`).FindAllSubmatch(readFile(t, path), -1) {
			links++
			checkLink(t, path, string(m[1]))
		}
	})
	if links < 30 {
		t.Errorf("found only %d links", links)
	}
}

// Each `make` in a document is a target of the Makefile, with variables that the Makefile
// has; each path below deploy is there.
func TestEveryDocumentedTargetAndPathExists(t *testing.T) {
	makefile := string(readFile(t, "../Makefile"))
	found := 0
	eachDocument(t, func(path string) {
		text := string(readFile(t, path))
		for _, m := range regexp.MustCompile("(?m)(?:`|^ {4,})make( [^`#\n]+)").FindAllStringSubmatch(text, -1) {
			found++
			for _, word := range strings.Fields(m[1]) {
				name, _, isVariable := strings.Cut(word, "=")
				if isVariable && !strings.Contains(makefile, name) || !isVariable && !strings.Contains(makefile, "\n"+word+": ") {
					t.Errorf("%s: make%s: the Makefile has no %s", path, m[1], name)
				}
			}
		}
		for _, m := range regexp.MustCompile(`\bdeploy/[\w./-]*\w`).FindAllString(text, -1) {
			own := slices.Contains([]string{"deploy/csi-attach-hub", "deploy/ebs-csi-controller", "deploy/NAME"}, m) // the reader's, kubectl's
			if _, err := os.Stat(filepath.Join("..", m)); err != nil && !own {
				t.Errorf("%s: %v", path, err)
			}
		}
	})
	if found < 15 {
		t.Errorf("found only %d times make", found)
	}
}

// The file that the Makefile names for `make bench MARKDOWN=` has the markers that bench
// writes between.
func TestTheMeasurementsHaveTheMarkersOfBench(t *testing.T) {
	const file = "BENCHMARKS.md"
	if !strings.Contains(string(readFile(t, "../Makefile")), "MARKDOWN=deploy/"+file) {
		t.Errorf("the Makefile does not name deploy/%s", file)
	}
	text := string(readFile(t, file))
	for _, marker := range []string{"bench", "/bench", "bench pictures", "/bench pictures"} {
		if strings.Count(text, "\n<!-- "+marker+" -->\n") != 1 {
			t.Errorf("%s does not have the marker %s once", file, marker)
		}
	}
}

// checkLink checks a link in a document: the file is there, and so is the heading.
func checkLink(t *testing.T, document, link string) {
	t.Helper()
	target, err := url.Parse(link)
	if err != nil || target.IsAbs() {
		return
	}
	file := document
	if target.Path != "" {
		file = filepath.Join(filepath.Dir(document), target.Path)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("%s: %s: %v", document, link, err)
		return
	}
	if target.Fragment == "" {
		return
	}
	for line := range strings.Lines(string(readFile(t, file))) {
		if heading := strings.TrimLeft(line, "#"); heading != line && anchor(heading) == target.Fragment {
			return
		}
	}
	t.Errorf("%s: %s: there is no such heading", document, link)
}

// anchor is how GitHub links to a heading.
func anchor(heading string) string {
	kept := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
	return strings.ReplaceAll(kept, " ", "-")
}
