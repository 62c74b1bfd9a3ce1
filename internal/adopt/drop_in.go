package adopt

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	hubProgram   = "/csi-attach-hub" // in the image
	minHubMemory = "512Mi"           // limit of the hub's own Deployment
)

// dropInPatch puts the hub in place of csi-attacher. All else stays: flags, leader election, probes.
func (p Plan) dropInPatch(t *templatePatch) {
	change := map[string]any{"image": p.Options.Image}
	if u := p.user(); p.User.UID == nil && !p.Options.OpenShift {
		change["securityContext"] = map[string]any{"runAsUser": u.ID()}
	}
	if len(p.Container.Command) > 0 {
		change["command"] = []string{hubProgram}
	}
	args := p.Container.Args
	if len(p.Container.Command) > 0 {
		args = slices.Concat(p.Container.Command[1:], args)
	}
	if p.Flags.Address == "" { // by this flag the hub knows that it stands for a csi-attacher
		args = append(args[:len(args):len(args)], "--csi-address="+p.Socket.Path)
	}
	if !slices.Equal(args, p.Container.Args) {
		change["args"] = args
	}
	if p.littleMemory() {
		change["resources"] = map[string]any{"limits": map[string]any{"memory": minHubMemory}}
	}
	p.changeAttacher(t, change)
}

// littleMemory reports whether the limit of csi-attacher is below the hub's.
func (p Plan) littleMemory() bool {
	limit := p.Container.Resources.Limits.Memory()
	return !limit.IsZero() && limit.Cmp(resource.MustParse(minHubMemory)) < 0
}
