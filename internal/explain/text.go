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

const (
	// mostRows is how many VolumeAttachments of a driver or a node the text names.
	mostRows = 20
	// problem is the mark of what is wrong, also that of what else was found, and fine that of what is as it should be.
	problem, also, fine = "PROBLEM", "also", "ok"
	// textAt is where the texts behind marks begin.
	textAt = len(problem) + 2
)

// printer writes a report for people.
type printer struct {
	strings.Builder
	statustable.Style
	report  Report
	verbose bool // also what is as it should be
}

// line writes a text behind a mark in the colour of a health, wrapped to the terminal.
func (p *printer) line(mark string, health status.HealthState, text string) {
	for _, line := range statustable.Wrap(terminal.Line(text), p.Width-textAt, 0) {
		p.WriteString(p.Paint(mark, health) + strings.Repeat(" ", textAt-len(mark)) + line + "\n")
		mark = ""
	}
}

// head writes a headline in the colour of a result.
func (p *printer) head(title string, result Result, since time.Time) {
	health := map[bool]status.HealthState{true: status.Fine, false: status.Attention}[result.ExitCode() == 0]
	if p.report.Subject != nil {
		health = status.HealthState(result)
	}
	if title += ": " + cmp.Or(texts[result], string(result)); !since.IsZero() {
		title += " for " + diagnosis.Length(p.report.AsOf.Sub(since))
	}
	if n := p.report.inTrouble(); n > 0 && (p.report.Question.Kind == Node || health == status.Fine) { // the reasons of a driver count those that it must work for
		title += fmt.Sprintf("; %d of its volumes in trouble", n)
		health = slices.MinFunc([]status.HealthState{health, status.Attention}, status.HealthState.Compare)
	}
	for _, line := range statustable.Wrap(terminal.Line(title), p.Width, 0) {
		p.WriteString(p.Paint(line, health) + "\n")
	}
}

// slow is the age from which work in progress is a problem, as everywhere in the hub, and inProgress are the verdicts of it:
// another attacher may serve a driver that is not configured.
const slow = time.Minute

var inProgress = []diagnosis.Verdict{diagnosis.DriverNotConfigured, diagnosis.CallInFlight, diagnosis.Queued, diagnosis.BeingDetached, diagnosis.NoReasonKnown}

// stop writes the finding at which a walk stops, if it does. since is when the attach or the detach was required.
func (p *printer) stop(d *diagnosis.Diagnosis, result Result, since time.Time) {
	switch {
	case d == nil:
	case result.ExitCode() == 0, slices.Contains(inProgress, d.Verdict) && p.report.AsOf.Sub(since) < slow:
		p.findings(fine, status.Fine, *d)
	default:
		p.findings(problem, status.Broken, *d)
	}
}

// findings writes findings with what to do, and each command on a line of its own, to be copied as it is.
func (p *printer) findings(mark string, health status.HealthState, all ...diagnosis.Diagnosis) {
	for _, d := range all {
		text := d.Text(p.report.AsOf)
		if d.Object != p.report.Question.String() { // which the headline names
			text = d.Object + ": " + text
		}
		p.line(mark, health, text)
		for i, action := range d.Actions {
			p.line("", "", "-> "+action)
			for _, command := range d.Commands {
				if i == 0 { // which they do
					p.WriteString(strings.Repeat(" ", textAt+3) + command + "\n")
				}
			}
		}
	}
}

// texts are the results for people.
var texts = map[Result]string{NotFound: "not found", NotUnique: "not unique", NotNeeded: "needs no attach", NotKnown: "not known"}

// Text writes the report for people: first what is wrong and what to do, then the way there.
func (r Report) Text(style statustable.Style, verbose bool) string {
	p := printer{Style: style, report: r, verbose: verbose}
	switch {
	case r.Subject != nil:
		p.head(r.Question.String(), r.Result, r.Subject.Since)
		p.subject(r.Subject)
	case len(r.Volumes) == 1:
		p.volume(r.Question.String()+", "+r.Volumes[0].Title, r.Volumes[0])
	default:
		p.head(r.Question.String(), r.Result, time.Time{})
		p.stop(r.Stop, r.Result, time.Time{})
		for _, v := range r.Volumes {
			p.WriteString("\n")
			p.volume(v.Title, v)
		}
	}
	if all := r.VolumeAttachments; len(all) > 0 {
		p.WriteString("\nVolumeAttachments, the worst first:\n" + statustable.Volumes(slices.Chunk(all[:min(mostRows, len(all))], 1), false, r.AsOf).Text(style))
		if more := len(all) - mostRows; more > 0 {
			fmt.Fprintf(&p, "and %d more: csi-attach-hub volumes lists all\n", more)
		}
		p.WriteString("More about one: csi-attach-hub explain pv/VOLUME\n")
	}
	if len(r.Unknown) > 0 {
		p.WriteString("\nNot known:\n")
	}
	for _, text := range r.Unknown {
		p.line("", "", text)
	}
	return p.String()
}

// volume writes the answer for one volume.
func (p *printer) volume(title string, v VolumeReport) {
	p.head(title, v.Result, v.Since)
	p.stop(v.Stop, v.Result, v.Since)
	p.findings(also, status.Attention, v.Notes...)
	if len(v.Path) > 0 && !p.verbose {
		p.line(fine, status.Fine, "all else: -v shows it")
		return
	}
	for _, text := range v.Path {
		p.line(fine, status.Fine, text)
	}
}

// subject writes the answer for a driver or a node.
func (p *printer) subject(s *SubjectReport) {
	for i, r := range s.Reasons {
		mark := also
		if i == 0 {
			mark = map[bool]string{true: problem, false: fine}[s.Needs()]
		}
		p.findings(mark, r.State, r.Diagnosis)
	}
	p.findings(also, status.Attention, s.Notes...)
	for _, text := range s.Details {
		p.line(fine, status.Fine, text)
	}
	if len(s.Checks) > 0 {
		p.WriteString("\nChecklist:\n")
	}
	for _, c := range s.Checks {
		mark, health, text := fine, status.Fine, diagnosis.Because(c.Name, c.Text)
		if !c.OK {
			mark, health = "OPEN", status.Attention
		}
		p.line(mark, health, text)
		for _, action := range c.Actions {
			if !slices.ContainsFunc(s.Reasons, func(r status.Reason) bool { return slices.Contains(r.Actions, action) }) { // which has it above
				p.line("", "", "-> "+action)
			}
		}
	}
}
