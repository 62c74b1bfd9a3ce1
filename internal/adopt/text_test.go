package adopt

import (
	"strings"
	"testing"
)

func TestTextHasAtMostHundredColumns(t *testing.T) {
	long := strings.Repeat("kubectl get a-long-word ", 10)
	lines := strings.Split(wrap("- ", long), "\n")
	for i, line := range lines {
		if len(line) > width || i > 0 && !strings.HasPrefix(line, "  kubectl") && !strings.HasPrefix(line, "  get") && !strings.HasPrefix(line, "  a-") {
			t.Errorf("%q", line)
		}
	}
	if got := strings.Join(strings.Fields(strings.Join(lines, " ")), " "); got != "- "+strings.TrimSpace(long) {
		t.Errorf("words are missing: %q", got)
	}
}

func TestShellsTakeWordsAsTheyAre(t *testing.T) {
	for word, want := range map[string]string{"a=b": "a=b", "$(reboot)": "'$(reboot)'", "it's": `'it'\''s'`, "": "''"} {
		if got := quoted(word); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNamesThatNoObjectCanHaveAreRefused(t *testing.T) {
	text := strings.NewReplacer("name: controller", "name: ../etc", "namespace: storage", "namespace: ../../x", "name: csi-attacher", `name: "c\\nd attacher"`).Replace(manifest)
	p := onlyPlan(t, text, Options{Drivers: nil})
	no := strings.Join(p.No, "\n")
	for _, want := range []string{"metadata.name: ", "namespace: ", "container name: "} {
		if !strings.Contains(no, want) {
			t.Errorf("%s: has no %s", no, want)
		}
	}
}

// Texts of a manifest end up in a README.md: they must not end the block of code.
func TestTextsOfManifestsCannotActInMarkdown(t *testing.T) {
	p := podWith(t, Options{Mode: ModeProxy}, "--leader-election, \"--foreign=```\\n# heading\"", "", "")
	files, err := Kustomize([]Plan{p}, "out")
	if err != nil {
		t.Fatal(err)
	}
	_, finding, _ := strings.Cut(string(files["README.md"]), "## What adopt has found\n\n```\n")
	if strings.Count(finding, "```") != 1 || strings.Contains(finding, "\n# heading") || !strings.Contains(finding, "''' # heading") {
		t.Errorf("%s", finding)
	}
}
