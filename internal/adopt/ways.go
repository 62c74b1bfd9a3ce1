package adopt

import (
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// decideWay adds to a plan what its mode cannot do, and what the user must know of the mode.
func (p Plan) decideWay(in input) Plan {
	if p.Options.Mode != ModeDropIn && makesAttacher(p.Container) {
		p.No = []string{terminal.Line(fmt.Sprintf("container %s makes the Deployment of csi-attacher, and restores it after a change: use --mode drop-in", p.Container.Name))}
		return p
	}
	var no, notes []string
	switch p.Options.Mode {
	case ModeDropIn:
		p = p.throughDeployer(in)
		no, notes = p.dropInVerdict()
	case ModeSidecarHub:
		if !p.Adoptable() { // by the deployer, which is the same reason
			return p
		}
		no, notes = p.sidecarHubVerdict()
	default:
		notes = p.proxyNotes()
	}
	for _, text := range no { // parts of manifests are in it
		p.No = append(p.No, terminal.Line(text))
	}
	for _, text := range notes {
		p.Notes = append(p.Notes, terminal.Line(text))
	}
	return p
}

// generatedBy returns the program that makes the workload and restores what a patch changes, "" if none is known.
func (p Plan) generatedBy() string { return p.Workload.GetLabels()["longhorn.io/managed-by"] }
