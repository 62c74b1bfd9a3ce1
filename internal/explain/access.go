package explain

import (
	"regexp"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// throughAccess adds to all commands of a report the flags by which explain itself reached the cluster: without them, they
// would act on that of the current context. Without any flags it changes nothing.
func (r *Report) throughAccess(flags []string) {
	if len(flags) == 0 {
		return
	}
	quoted := strings.Join(diagnosis.Commands(flags), "") // "" if they cannot be printed
	for _, f := range r.findings() {
		var all []string
		for _, line := range f.Commands {
			if quoted != "" {
				all = append(all, withFlags(line, quoted))
			}
		}
		f.Commands = all // never in place: the view of the hub may have them too
	}
}

// findings returns all findings of the report.
func (r *Report) findings() []*Finding {
	var all []*Finding
	add := func(stop *Finding, notes []Finding) {
		if stop != nil {
			all = append(all, stop)
		}
		for i := range notes {
			all = append(all, &notes[i])
		}
	}
	add(r.Stop, nil)
	if s := r.Subject; s != nil {
		for i := range s.Reasons {
			add(&s.Reasons[i].Finding, nil)
		}
		add(nil, s.Notes)
	}
	for _, v := range r.Volumes {
		add(v.Stop, v.Notes)
	}
	for _, g := range r.Groups {
		add(g.Cause, nil)
	}
	return all
}

// shellPiece is a part of a command line: a quoted text, an escape, an operator, space, or a plain part of a word.
var shellPiece = regexp.MustCompile(`'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[|;&]+|\s+|[^\s'"\\|;&]+|.`)

// withFlags returns a command line with flags for each kubectl and each csi-attach-hub that it runs: behind the name of the
// program, and of the subcommand of csi-attach-hub.
func withFlags(line, flags string) string {
	var out strings.Builder
	starts, after := true, 0 // the next word is that of a program; the flags follow so many words later
	for _, piece := range shellPiece.FindAllString(line, -1) {
		out.WriteString(piece)
		switch {
		case strings.Trim(piece, "|;&") == "":
			starts = true
			continue
		case strings.TrimSpace(piece) == "":
			continue
		case starts && piece == "kubectl":
			after = 1
		case starts && piece == "csi-attach-hub":
			after = 2
		}
		starts = false
		if after--; after == 0 {
			out.WriteString(" " + flags)
		}
	}
	return out.String()
}
