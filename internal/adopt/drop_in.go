package adopt

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	hubProgram   = "/csi-attach-hub" // in the image
	minHubMemory = "512Mi"           // limit of the hub's own Deployment
)

// retired are flags of old releases of csi-attacher, and whether each takes a value. The hub refuses to start with them.
var retired = map[string]bool{"connection-timeout": true, "dummy": false, "leader-election-type": true, "leader-election-identity": true,
	"logtostderr": false, "alsologtostderr": false, "stderrthreshold": true, "log_backtrace_at": true, "log_dir": true, "log_file": true, "log_file_max_size": true,
	"skip_headers": false, "skip_log_headers": false, "add_dir_header": false, "one_output": false}

// dropInPatch puts the hub in place of csi-attacher. All else stays: flags, leader election, probes.
func (p Plan) dropInPatch(t *templatePatch) {
	change := map[string]any{"image": p.Options.Image}
	if u := p.user(); p.User.UID == nil && !p.Options.OpenShift {
		change["securityContext"] = map[string]any{"runAsUser": u.ID()}
	}
	if len(p.Container.Command) > 0 {
		change["command"] = []string{hubProgram}
	}
	if args, _ := p.hubArgs(); !slices.Equal(args, p.Container.Args) {
		change["args"] = args
	}
	if p.littleMemory() {
		change["resources"] = map[string]any{"limits": map[string]any{"memory": minHubMemory}}
	}
	p.changeAttacher(t, change)
}

// hubArgs returns the arguments of csi-attacher as the hub takes them, with their variables as they are written, and the
// arguments that it leaves out.
func (p Plan) hubArgs() (args, leftOut []string) {
	words := p.Container.Args
	if len(p.Container.Command) > 0 {
		words = slices.Concat(p.Container.Command[1:], words)
	}
	for i := 0; i < len(words); i++ {
		takesValue, isRetired := retired[flagName(words[i])]
		if !isRetired {
			args = append(args, words[i])
			continue
		}
		removed := words[i]
		if takesValue && !strings.Contains(removed, "=") && i+1 < len(words) {
			i++
			removed += " " + words[i]
		}
		leftOut = append(leftOut, removed)
	}
	if p.Flags.Address == "" {
		args = append(args, "--csi-address="+p.Socket.Path) // by this flag the hub knows that it stands for a csi-attacher
	}
	return args, leftOut
}

// flagName returns the name of a flag, "" of another argument.
func flagName(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	if !strings.HasPrefix(name, "-") {
		return ""
	}
	return strings.TrimLeft(name, "-")
}

// littleMemory reports whether the limit of csi-attacher is below the hub's.
func (p Plan) littleMemory() bool {
	limit := p.Container.Resources.Limits.Memory()
	return !limit.IsZero() && limit.Cmp(resource.MustParse(minHubMemory)) < 0
}
