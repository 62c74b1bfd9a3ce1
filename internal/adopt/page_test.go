package adopt

import (
	"strings"
	"testing"
)

func TestTextHasAtMostHundredColumnsButCommandsStayWhole(t *testing.T) {
	var b page
	long := strings.Repeat("kubectl get a-long-word ", 10)
	b.heading(1, "title")
	b.fact("Name", long)
	b.item(long)
	b.step(10, long)
	b.say(long)
	for line := range strings.Lines(b.b.String()) {
		if len(strings.TrimSuffix(line, "\n")) > width {
			t.Errorf("too long: %q", line)
		}
	}
	b.code("sh", true, long)
	if !strings.Contains(b.b.String(), strings.TrimSuffix(long, " ")+"\n") {
		t.Error("the command was wrapped")
	}
}

// Texts of a manifest end up in a README.md: they must not end the block of code, or begin a tag or a link.
func TestTextsOfManifestsCannotActInMarkdown(t *testing.T) {
	b := page{markdown: true}
	b.fact("Read from", "<script>[x](javascript:1)`\n# heading")
	b.code("sh", false, "```", "<b>")
	got := b.b.String()
	want := "- Read from: &lt;script>[x] (javascript:1)' # heading\n\n```sh\n'''\n<b>\n```\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestShellsTakeWordsAsTheyAre(t *testing.T) {
	if got, want := shellLine([]string{"a=b", "$(reboot)", "it's", ""}), `a=b '$(reboot)' 'it'\''s' ''`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNamesThatNoObjectCanHaveAreAnError(t *testing.T) {
	w := &Workload{Namespace: "../../x"}
	w.Object.Object = map[string]any{"metadata": map[string]any{"name": "../etc"}}
	p := Plan{Attacher: Attacher{Workload: w}, Driver: "a b", Secrets: []SecretName{{"storage", "$(x)"}}}
	p.Container.Name = "c\nd"
	err := Check([]Plan{p})
	for _, want := range []string{`metadata.name "../etc"`, `namespace "../../x"`, `driver name "a b"`, `name of a Secret "$(x)"`, `container name "c\nd"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: has no %s", err, want)
		}
	}
}

// The numbers of documents are those that Read gives to objects.
func TestDocumentsAreCountedAsReadCountsThem(t *testing.T) {
	const object = "kind: A\napiVersion: v1\nmetadata: {name: x}\n"
	for _, input := range []string{
		"%", "---\n%", "# comment\n---\n%---\n%", "%---\n---\n%", "%--- # comment\n%---\n", "\n---\n\n---\n%", "---\n---\n%---\n# end\n---\n%",
	} {
		text := strings.ReplaceAll(input, "%", object)
		objects, err := Read("stdin", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		spans := documents([]byte(text))
		for _, o := range objects {
			n := o.Source.Document - 1
			if n >= len(spans) || !strings.Contains(text[spans[n].first:spans[n].last], "kind: A") {
				t.Errorf("%q: document %d is not the object", text, n+1)
			}
		}
	}
}
