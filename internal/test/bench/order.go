package main

import "slices"

// order returns the competitors of a round, which counts from 0, in the order of their turns. The control plane gets slower
// with age, and the machine's speed drifts: so hub and floor are neighbours, and each is the first in every second round.
// The sidecars of a round come before them or after them, by turns.
func (c Case) order(round int, always, sidecars []competitor) []competitor {
	pair, every := rotated(always, round), c.sidecarsEvery()
	if round%every != 0 || len(sidecars) == 0 {
		return pair
	}
	others := rotated(sidecars, round/every)
	if round/every%2 == 1 {
		return append(others, pair...)
	}
	return append(pair, others...)
}

// rotated returns a copy of a list that begins with another element.
func rotated(all []competitor, by int) []competitor {
	by %= len(all)
	return slices.Concat(all[by:], all[:by])
}

// sidecarsEvery returns after how many rounds csi-attacher takes part again.
func (c Case) sidecarsEvery() int {
	if c.SidecarRounds <= 0 || c.SidecarRounds >= c.Rounds {
		return 1
	}
	return (c.Rounds + c.SidecarRounds - 1) / c.SidecarRounds
}
