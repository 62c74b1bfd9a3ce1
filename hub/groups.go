package hub

import (
	"iter"
	"maps"
)

// groups are names, each in one group, found by either. The zero value is empty.
type groups struct {
	of      map[string]string          // group, by name
	members map[string]map[string]bool // names, by group
}

// put puts a name into a group, and takes it from the one that it was in.
func (g *groups) put(name, group string) {
	g.remove(name)
	if g.of == nil {
		g.of, g.members = map[string]string{}, map[string]map[string]bool{}
	}
	if g.members[group] == nil {
		g.members[group] = map[string]bool{}
	}
	g.of[name], g.members[group][name] = group, true
}

func (g *groups) remove(name string) {
	group, ok := g.of[name]
	if !ok {
		return
	}
	delete(g.of, name)
	if delete(g.members[group], name); len(g.members[group]) == 0 {
		delete(g.members, group)
	}
}

func (g *groups) clear() {
	clear(g.of)
	clear(g.members)
}

// in returns the names of a group, in any order.
func (g *groups) in(group string) iter.Seq[string] { return maps.Keys(g.members[group]) }
