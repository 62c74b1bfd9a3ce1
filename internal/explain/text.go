package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// mostRows is how many VolumeAttachments of a driver or a node the text names.
const mostRows = 20

// printer writes a report for people, fit for a terminal.
type printer struct{ strings.Builder }

func (p *printer) line(indent, format string, args ...any) {
	p.WriteString(indent + terminal.Line(fmt.Sprintf(format, args...)) + "\n")
}

// findings writes findings with what to do, and each command on a line of its own, to be copied as it is. mark has the width
// of all marks.
func (p *printer) findings(mark string, all ...Finding) {
	for _, f := range all {
		p.line("  "+mark, "%s: %s", f.Object, f.Fact)
		if f.Next != "" {
			p.line("        ", "-> %s", f.Next)
		}
		for _, command := range f.Commands {
			p.WriteString("           " + command + "\n")
		}
	}
}

func (p *printer) lines(mark string, all []string) {
	for _, text := range all {
		p.line(mark, "%s", text)
	}
}

// texts are the results for people.
var texts = map[Result]string{NotFound: "not found", NotKnown: "not known"}

// Text writes the report for people: first what is wrong and what to do, then the way there.
func (r Report) Text() string {
	var p printer
	headline := cmp.Or(texts[r.Result], string(r.Result))
	if r.Subject != nil {
		headline += r.Subject.forHowLong()
	}
	p.line("", "%s: %s", r.Question, headline)
	if r.Stop != nil {
		p.findings("STOP  ", *r.Stop)
	}
	if r.Subject != nil {
		p.subject(r.Subject)
	}
	for _, v := range r.Volumes {
		p.WriteString("\n")
		p.line("", "%s: %s%s", v.Title, cmp.Or(texts[v.Result], string(v.Result)), v.forHowLong())
		if v.Stop != nil {
			p.findings("STOP  ", *v.Stop)
		}
		p.findings("note  ", v.Notes...)
		p.lines("  ok    ", v.Path)
	}
	if all := r.VolumeAttachments; len(all) > 0 {
		p.WriteString("\nVolumeAttachments, the worst first:\n" + statustable.Volumes(slices.Chunk(all[:min(mostRows, len(all))], 1), false, r.AsOf).Text(statustable.Style{}))
		if more := len(all) - mostRows; more > 0 {
			p.line("", "and %d more: csi-attach-hub volumes lists all", more)
		}
		p.WriteString("More about one: csi-attach-hub explain pv/VOLUME\n")
	}
	if len(r.Unknown) > 0 {
		p.WriteString("\nNot known:\n")
		p.lines("  ", r.Unknown)
	}
	return p.String()
}

// marks are those of reasons.
var marks = map[status.HealthState]string{status.Broken: "STOP  ", status.Attention: "warn  ", status.Standby: "note  ", status.Fine: "note  "}

func (p *printer) subject(s *SubjectReport) {
	for _, r := range s.Reasons {
		p.findings(marks[r.Health], r.Finding)
	}
	p.findings("note  ", s.Notes...)
	p.lines("  info  ", s.Facts)
	if len(s.Checks) > 0 {
		p.WriteString("\nChecklist:\n")
	}
	for _, c := range s.Checks {
		mark, text := "ok    ", diagnosis.Because(c.Name, c.Text)
		if !c.OK {
			mark = "OPEN  "
		}
		if c.Action != "" {
			text += " -> " + c.Action
		}
		p.line("  "+mark, "%s", text)
	}
}

// forHowLong returns " for 8m12s", "" if that is not known.
func (a Age) forHowLong() string {
	if a.Since.IsZero() {
		return ""
	}
	return " for " + diagnosis.Length(time.Duration(a.AgeSeconds)*time.Second)
}
