package adopt

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// Text explains the plans: for each csi-attacher the verdict, what was found, the notes and the hub's file.
func Text(plans []Plan) (string, error) {
	text, err := execute("finding.txt", plans)
	if i := slices.IndexFunc(plans, Plan.Adoptable); i >= 0 {
		name := cmp.Or(plans[i].Driver, plans[i].Workload.GetName())
		flags := "-o kustomize=" + Base(name)
		if !plans[i].Options.HasRegistry() {
			flags += " and --image, the image of " + plans[i].Options.Image + " that the nodes can pull,"
		}
		text += "\n" + wrap("", "Next: add "+flags+" to this command. It writes a folder, and README.md there has the steps. Nothing changes in the cluster before them.") + "\n"
	}
	return text, err
}

// width is of the lines that people read.
const width = 100

// wrap writes words in lines, the first of which begins with a text.
func wrap(first, words string) string {
	var lines []string
	line, empty := first, true
	for word := range strings.FieldsSeq(terminal.Line(words)) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line, empty = strings.Repeat(" ", len(first)), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return strings.Join(append(lines, line), "\n")
}

// Heading names the csi-attacher in two lines.
func (p Plan) Heading() string {
	title := terminal.Line(fmt.Sprintf("%s %s/%s, container %s", p.Workload.GetKind(), p.Workload.Namespace, p.Workload.GetName(), p.Container.Name))
	return title + "\n" + strings.Repeat("=", min(len([]rune(title)), width))
}

// Runs describes how many replicas of the driver there are.
func (p Plan) Runs() string {
	if p.Workload.GetKind() == "DaemonSet" {
		return "one on each of its nodes"
	}
	return fmt.Sprint(p.Workload.Replicas)
}

// yamlString returns a text as YAML, in quotes where it needs them: namespaces can be called 1234, 1e3, true or null.
func yamlString(text string) string {
	plain, err := yaml.Marshal(text)
	if err != nil || strings.TrimSuffix(string(plain), "\n") != text || text[0] <= '9' { // YAML 1.1 and 1.2 read digits differently
		return strconv.Quote(text)
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
