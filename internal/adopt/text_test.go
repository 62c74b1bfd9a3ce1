package adopt

import (
	"strings"
	"testing"
	"time"
)

func TestTextHasAtMostHundredColumnsButCommandsStayWhole(t *testing.T) {
	var b text
	long := strings.Repeat("kubectl get a-long-word ", 10)
	b.heading("title")
	b.fact("Name", long)
	b.wrap("- ", "  ", long)
	for line := range strings.Lines(b.String()) {
		if len(strings.TrimSuffix(line, "\n")) > width {
			t.Errorf("too long: %q", line)
		}
	}
	b.code(long)
	if !strings.Contains(b.String(), strings.TrimSuffix(long, " ")+"\n") {
		t.Error("the command was wrapped")
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
	p := podWith(t, Options{Mode: ModeProxy}, "--leader-election", "", "imagePullSecrets: [{name: \"```\\n# heading\"}]")
	files, err := Kustomize([]Plan{p}, "out")
	if err != nil {
		t.Fatal(err)
	}
	_, finding, _ := strings.Cut(string(files["README.md"]), "## What adopt has found\n\n```\n")
	if strings.Count(finding, "```") != 1 || strings.Contains(finding, "\n# heading") || !strings.Contains(finding, "''' # heading") {
		t.Errorf("%s", finding)
	}
}

func TestDurationsAreWrittenAsUsersWriteThem(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Minute: "2m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s", 0: "0s"} {
		if got := Duration(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
