package adopt

// decideWay adds to a plan what its mode cannot do, and what the user must know of the mode.
func (p Plan) decideWay(objects []Object) Plan {
	var no, notes []string
	switch p.Options.Mode {
	case ModeDropIn:
		p = p.throughDeployer(objects)
		no, notes = p.dropInVerdict()
	case ModeSidecarHub:
		no, notes = p.sidecarHubVerdict()
	default:
		notes = p.proxyNotes()
	}
	p.No, p.Notes = append(p.No, no...), append(p.Notes, notes...)
	return p
}

// generatedBy returns the program that makes the workload and restores what a patch changes, "" if none is known.
func (p Plan) generatedBy() string { return p.Workload.GetLabels()["longhorn.io/managed-by"] }
