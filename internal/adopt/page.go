package adopt

import (
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// width is how many columns a line of text has at most. Commands are not wrapped: they are copied.
const width = 100

// page writes what people read, as plain text or as Markdown. Texts of manifests are escaped: they can hold anything.
type page struct {
	b        strings.Builder
	markdown bool
	asCalled func(string) string // names the program in command lines as the user calls it; nil: csi-attach-hub
}

// heading begins a part. level counts from 1.
func (p *page) heading(level int, text string) {
	text = p.safe(text)
	p.gap()
	switch {
	case p.markdown:
		fmt.Fprintf(&p.b, "%s %s\n\n", strings.Repeat("#", level), text)
	case level == 1:
		fmt.Fprintf(&p.b, "%s\n%s\n\n", text, strings.Repeat("=", min(len([]rune(text)), width)))
	default:
		fmt.Fprintf(&p.b, "%s:\n\n", text)
	}
}

// fact writes a name and its value.
func (p *page) fact(name, value string) {
	if p.markdown {
		fmt.Fprintf(&p.b, "- %s: %s\n", name, p.safe(value))
		return
	}
	p.wrap(fmt.Sprintf("%-16s ", name), strings.Repeat(" ", 17), value)
}

// detail writes an item of the list below a fact.
func (p *page) detail(text string) {
	if p.markdown {
		fmt.Fprintf(&p.b, "  - %s\n", p.safe(text))
		return
	}
	p.wrap(strings.Repeat(" ", 17)+"- ", strings.Repeat(" ", 19), text)
}

// item writes an item of a list.
func (p *page) item(text string) { p.wrap("- ", "  ", text) }

// step writes the title of a numbered step.
func (p *page) step(n int, text string) {
	p.gap()
	p.wrap(fmt.Sprintf("%-4s", fmt.Sprintf("%d.", n)), "    ", text)
}

// say writes a paragraph.
func (p *page) say(text string) {
	p.gap()
	p.wrap("", "", text)
}

// gap ends a paragraph.
func (p *page) gap() {
	if p.b.Len() > 0 && !strings.HasSuffix(p.b.String(), "\n\n") {
		p.b.WriteString("\n")
	}
}

// code writes lines as they are, indented as part of a step if inStep.
func (p *page) code(language string, inStep bool, lines ...string) {
	indent := ""
	if inStep {
		indent = "    "
	}
	p.gap()
	if p.markdown {
		p.b.WriteString(indent + "```" + language + "\n")
	}
	for _, line := range lines {
		line = indent + escaped(p.called(line))
		if p.markdown {
			line = strings.ReplaceAll(line, "```", "'''")
		} else {
			line = "  " + line
		}
		p.b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if p.markdown {
		p.b.WriteString(indent + "```\n")
	}
}

// wrap writes words in lines of at most width columns, the first behind first and the others behind rest.
func (p *page) wrap(first, rest, text string) {
	line, empty := first, true
	for word := range strings.FieldsSeq(p.safe(text)) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > width {
			p.b.WriteString(line + "\n")
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	p.b.WriteString(line + "\n")
}

// safe makes a text safe to print: on one line, without what terminals or Markdown act on.
func (p *page) safe(text string) string {
	text = terminal.Line(p.called(text))
	if p.markdown {
		text = strings.NewReplacer("<", "&lt;", "`", "'", "](", "] (").Replace(text)
	}
	return text
}

func (p *page) called(text string) string {
	if p.asCalled == nil {
		return text
	}
	return p.asCalled(text)
}

// escaped makes a line safe to print. Its spaces stay.
func escaped(line string) string {
	words := strings.Split(line, " ")
	for i := range words {
		words[i] = terminal.Line(words[i])
	}
	return strings.Join(words, " ")
}
