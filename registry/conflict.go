package registry

import (
	"cmp"
	"slices"
)

// Conflict is a driver that was found and is not served, or not as it was found.
// Origins are in the form of Driver.Source.
type Conflict struct {
	Driver string // its name
	Winner string // origin of the driver that is served instead; "" if none is
	Loser  string // origin of what is not served
	Reason string // for people; one line
}

// sortConflicts puts conflicts into the order in which they are shown.
func sortConflicts(all []Conflict) {
	slices.SortFunc(all, func(a, b Conflict) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Loser, b.Loser), cmp.Compare(a.Reason, b.Reason))
	})
}

// withoutWinner returns what identifies a conflict: the line in Winner moves with each edit
// above it.
func (c Conflict) withoutWinner() Conflict {
	c.Winner = ""
	return c
}

// newIn returns the conflicts of now that are not among was.
func newIn(now, was []Conflict) []Conflict {
	known := map[Conflict]bool{}
	for _, c := range was {
		known[c.withoutWinner()] = true
	}
	return slices.DeleteFunc(slices.Clone(now), func(c Conflict) bool { return known[c.withoutWinner()] })
}
