package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// mostInGroup is how many VolumeAttachments of a group the text names.
const mostInGroup = 10

// printer writes a report for people, fit for a terminal.
type printer struct{ strings.Builder }

func (p *printer) line(indent, format string, args ...any) {
	p.WriteString(indent + terminal.Line(fmt.Sprintf(format, args...)) + "\n")
}

// finding writes a finding with what to do. mark has the width of all marks.
func (p *printer) finding(mark string, f Finding) {
	p.line("  "+mark, "%s: %s", f.Object, f.Fact)
	p.next(f)
}

// next writes what to do about a finding, and each command on a line of its own, to be copied as it is.
func (p *printer) next(f Finding) {
	if f.Next != "" {
		p.line("        ", "-> %s", f.Next)
	}
	for _, command := range f.Commands {
		p.WriteString("           " + command + "\n")
	}
}

func (p *printer) findings(mark string, all []Finding) {
	for _, f := range all {
		p.finding(mark, f)
	}
}

// Text writes the report for people: first what is wrong and what to do, then the way there.
func (r Report) Text() string {
	var p printer
	headline := cmp.Or(texts[r.Result], string(r.Result))
	if r.Subject != nil {
		headline += r.Subject.forHowLong()
	}
	p.line("", "%s: %s", r.Question, headline)
	if r.Stop != nil {
		p.finding("STOP  ", *r.Stop)
	}
	if r.Subject != nil {
		p.subject(r.Subject)
	}
	for _, v := range r.Volumes {
		p.volume(v)
	}
	p.groups(r)
	if len(r.Unknown) > 0 {
		p.WriteString("\nNot known:\n")
		for _, u := range r.Unknown {
			p.line("  ", "%s", u)
		}
	}
	return p.String()
}

func (p *printer) volume(v VolumeReport) {
	p.WriteString("\n")
	p.line("", "%s: %s%s", v.Title, texts[v.Result], v.forHowLong())
	if v.Stop != nil {
		p.finding("STOP  ", *v.Stop)
	}
	p.findings("note  ", v.Notes)
	for _, step := range v.Path {
		p.line("  ok    ", "%s", step)
	}
}

// marks are those of reasons.
var marks = map[status.HealthState]string{status.Broken: "STOP  ", status.Attention: "warn  ", status.Standby: "note  ", status.Fine: "note  "}

func (p *printer) subject(s *SubjectReport) {
	for _, r := range s.Reasons {
		p.finding(marks[r.Health], r.Finding)
	}
	p.findings("note  ", s.Notes)
	for _, fact := range s.Facts {
		p.line("  info  ", "%s", fact)
	}
	if len(s.Checks) > 0 {
		p.WriteString("\nChecklist:\n")
	}
	for _, c := range s.Checks {
		mark := "ok    "
		if !c.OK {
			mark = "OPEN  "
		}
		text := diagnosis.Because(c.Name, c.Text)
		if c.Action != "" {
			text += " -> " + c.Action
		}
		p.line("  "+mark, "%s", text)
	}
}

func (p *printer) groups(r Report) {
	if len(r.Groups) > 0 {
		p.WriteString("\n")
		p.line("", "VolumeAttachments, the worst first:")
	}
	for _, g := range r.Groups {
		if g.Cause == nil {
			p.line("  ", "×%d attached", len(g.Volumes))
		} else {
			p.line("  ", "×%d %s: %s: %s", len(g.Volumes), groupTexts[g.Health], g.Cause.Object, g.Cause.Fact)
			p.next(*g.Cause)
		}
		for _, v := range g.Volumes[:min(mostInGroup, len(g.Volumes))] {
			p.line("      ", "%s", v.text(r.Question.Kind, g.Cause != nil))
		}
		if more := len(g.Volumes) - mostInGroup; more > 0 {
			p.line("      ", "and %d more", more)
		}
	}
	if slices.ContainsFunc(r.Groups, func(g Group) bool { return g.Cause != nil }) {
		p.line("", "More about one: csi-attach-hub explain VOLUMEATTACHMENT")
	}
	if r.More > 0 {
		p.line("", "%d more are in trouble and not explained here: csi-attach-hub volumes lists all.", r.More)
	}
}

// groupTexts are the states of VolumeAttachments for people.
var groupTexts = map[status.HealthState]string{status.Broken: "stuck", status.Attention: "in trouble", status.Standby: "waiting", status.Fine: "in progress"}

// text names the VolumeAttachment, its volume and where it is.
func (v VolumeRef) text(asked Kind, waits bool) string {
	volume := prefixed("claim ", v.Claim)
	about := nonEmpty(cmp.Or(volume, prefixed("PersistentVolume ", v.PersistentVolume)))
	if asked != Node {
		about = append(about, "node "+v.Node)
	}
	if asked == Node {
		about = append(about, "driver "+v.Driver)
	}
	text := v.VolumeAttachment + " (" + strings.Join(about, ", ") + ")"
	if waits {
		text += v.forHowLong()
	}
	return text
}

// forHowLong returns " for 8m12s", "" if that is not known.
func (a Age) forHowLong() string {
	if a.Since.IsZero() {
		return ""
	}
	return " for " + diagnosis.Length(time.Duration(a.AgeSeconds)*time.Second)
}

// texts are the results for people.
var texts = map[Result]string{Attached: "attached", Waiting: "waiting", NotFound: "not found", NotKnown: "not known"}
