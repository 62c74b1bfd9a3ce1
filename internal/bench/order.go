package bench

// order returns the competitors of a round, which counts from 0, in the order of their turns. The control plane gets slower
// with age, and the machine's speed drifts: so the order rotates, and every competitor is as often the first as the others.
func (c Case) order(round int, always, sidecars []competitor) []competitor {
	all := always
	every := c.sidecarsEvery()
	if round%every == 0 {
		all = append(all[:len(all):len(all)], sidecars...)
	}
	shift := round
	if every > 1 {
		shift += round / every // the rounds with sidecars rotate among themselves
	}
	shift %= len(all)
	return append(all[shift:len(all):len(all)], all[:shift]...)
}

// sidecarsEvery returns after how many rounds csi-attacher takes part again.
func (c Case) sidecarsEvery() int {
	if c.SidecarRounds <= 0 || c.SidecarRounds >= c.Rounds {
		return 1
	}
	return (c.Rounds + c.SidecarRounds - 1) / c.SidecarRounds
}
