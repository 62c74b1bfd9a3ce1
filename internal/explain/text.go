package explain

import (
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Text writes the report for people, fit for a terminal.
func (r Report) Text() string {
	var out strings.Builder
	line := func(indent, format string, args ...any) {
		out.WriteString(indent + terminal.Line(fmt.Sprintf(format, args...)) + "\n")
	}
	finding := func(mark string, f Finding) {
		line("  "+mark, "%s: %s", f.Object, f.Fact)
		if f.Next != "" {
			line("        ", "-> %s", f.Next)
		}
	}
	line("", "%s: %s", r.Question, texts[r.Result])
	if r.Stop != nil {
		finding("STOP  ", *r.Stop)
	}
	for _, v := range r.Volumes {
		out.WriteString("\n")
		line("", "%s: %s", v.Title, texts[v.Result])
		for _, p := range v.Path {
			line("  ok    ", "%s", p)
		}
		if v.Stop != nil {
			finding("STOP  ", *v.Stop)
		}
		for _, n := range v.Notes {
			finding("note  ", n)
		}
	}
	if len(r.Unknown) > 0 {
		out.WriteString("\nNot known:\n")
		for _, u := range r.Unknown {
			line("  ", "%s", u)
		}
	}
	return out.String()
}

// texts are the results for people.
var texts = map[Result]string{Attached: "attached", Waiting: "waiting", NotFound: "not found", NotKnown: "not known"}
