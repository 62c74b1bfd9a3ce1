package adopt

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Text explains the plans: for each csi-attacher the verdict, what was found, the notes and the hub's file. call is the
// command line of adopt without its output, for the command that writes the folder.
func Text(plans []Plan, call []string) []byte {
	var t text
	for _, p := range plans {
		t.plan(p)
	}
	if slices.ContainsFunc(plans, Plan.Adoptable) {
		t.heading("Next: write the folder, and follow its README.md. Nothing changes in the cluster before that")
		var words []string
		for _, word := range slices.Concat([]string{"csi-attach-hub", "adopt"}, call, []string{"-o", "kustomize=" + folderName(plans)}) {
			words = append(words, quoted(word))
		}
		line := strings.Join(words, " ")
		if slices.Contains(call, "-") {
			line = "... | " + line
		}
		t.code(line)
	}
	return []byte(t.String())
}

// folderName returns a name for the folder of the drivers.
func folderName(plans []Plan) string {
	p := plans[max(0, slices.IndexFunc(plans, Plan.Adoptable))]
	if p.Driver == "" {
		return basePrefix + p.Workload.GetName()
	}
	return p.Base()
}

// text is what people read, in lines of at most width columns. Commands are not wrapped: they are copied.
type text struct{ strings.Builder }

const width = 100

// plan writes all about one csi-attacher.
func (t *text) plan(p Plan) {
	if t.Len() > 0 {
		t.WriteString("\n")
	}
	title := terminal.Line(fmt.Sprintf("%s %s/%s, container %s", p.Workload.GetKind(), p.Workload.Namespace, p.Workload.GetName(), p.Container.Name))
	fmt.Fprintf(t, "%s\n%s\n\n", title, strings.Repeat("=", min(len([]rune(title)), width)))
	verdict := "yes"
	switch {
	case !p.Adoptable():
		verdict = "no"
	case p.withoutLease():
		verdict = "yes, in this order: observe, end csi-attacher, see that nobody else attaches, activate"
	}
	t.fact("Can be adopted", verdict)
	for _, reason := range p.No {
		t.wrap(strings.Repeat(" ", 17)+"- ", strings.Repeat(" ", 19), reason)
	}
	t.fact("Read from", p.Workload.Source.String())
	driver := cmp.Or(p.Driver, "not known")
	if p.NameFrom != "" {
		driver += ", from " + p.NameFrom
	}
	t.fact("Driver", driver)
	if v := p.Socket.Volume; p.Socket.Path != "" && v.Name != "" {
		t.fact("Socket", fmt.Sprintf("%s, in volume %s mounted at %s", p.Socket.Path, v.Name, p.Socket.Mount.MountPath))
	}
	t.fact("User", p.user().String())
	t.fact("Replicas", strings.TrimSuffix(p.replicas(), " replicas"))
	network := "of the Pod"
	if p.HostNetwork() {
		network = "of the node"
	}
	if p.Options.Mode == ModeProxy && p.Adoptable() {
		network += fmt.Sprintf("; the proxy takes port %d, and %d for its health", p.Ports.Listen, p.Ports.Health)
	}
	t.fact("Network", network)
	lease := "none: csi-attacher runs without --leader-election"
	if p.Flags.LeaderElection {
		lease = fmt.Sprintf("in namespace %s; it can take %s until the Lease of an ended csi-attacher is free", p.LeaseNamespace(), Duration(p.LeaseWait()))
		if p.Driver != "" {
			lease = registry.LeaseName(p.Driver) + " " + lease
		}
	}
	t.fact("Lease", lease)
	if len(p.Secrets) > 0 {
		t.fact("Secrets", strings.Trim(fmt.Sprint(p.Secrets), "[]"))
	}
	if len(p.Notes) > 0 {
		t.heading("Notes")
		for _, note := range p.Notes {
			t.wrap("- ", "  ", note)
		}
	}
	if p.Adoptable() && p.Options.Mode == ModeProxy {
		t.heading(p.fileName() + ", for the hub's folder of drivers")
		t.code(strings.Split(strings.TrimSuffix(p.File(), "\n"), "\n")...)
	}
}

// heading begins a part.
func (t *text) heading(title string) { fmt.Fprintf(t, "\n%s:\n\n", terminal.Line(title)) }

// fact writes a name and its value.
func (t *text) fact(name, value string) {
	t.wrap(fmt.Sprintf("%-16s ", name), strings.Repeat(" ", 17), value)
}

// code writes lines as they are.
func (t *text) code(lines ...string) {
	for _, line := range lines {
		words := strings.TrimLeft(line, " ")
		t.WriteString("    " + line[:len(line)-len(words)] + terminal.Line(words) + "\n")
	}
}

// wrap writes words in lines: the first behind first and the others behind rest.
func (t *text) wrap(first, rest, words string) {
	line, empty := first, true
	for word := range strings.FieldsSeq(terminal.Line(words)) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > width {
			t.WriteString(line + "\n")
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	t.WriteString(line + "\n")
}

// String describes a user.
func (u User) String() string {
	switch {
	case u.UID != nil:
		return fmt.Sprint(*u.UID)
	case u.Known():
		return "not set, which is root"
	}
	return "that of the image, not root"
}

// replicas returns how many replicas of the driver there are.
func (p Plan) replicas() string {
	if p.Workload.GetKind() == "DaemonSet" {
		return "a replica on each of its nodes"
	}
	return fmt.Sprintf("%d replicas", p.Workload.Replicas)
}

// Duration writes 2m where Duration.String of the package time writes 2m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

var shellWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted returns a word as a shell takes it.
func quoted(word string) string {
	if shellWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
