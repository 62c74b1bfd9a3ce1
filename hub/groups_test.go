package hub

import (
	"slices"
	"testing"
)

func TestNamesAreFoundByTheirGroupUntilTheyAreRemoved(t *testing.T) {
	var g groups
	g.put("a", "one")
	g.put("b", "one")
	g.put("c", "one")
	g.put("c", "two") // it moves
	g.remove("b")
	g.remove("b")
	g.remove("unknown")
	if one, two := slices.Collect(g.in("one")), slices.Collect(g.in("two")); !slices.Equal(one, []string{"a"}) || !slices.Equal(two, []string{"c"}) {
		t.Errorf("groups %v and %v, want a, and c", one, two)
	}
	g.remove("a")
	if len(g.members["one"]) > 0 || len(g.members["two"]) == 0 || len(g.members) != 1 {
		t.Errorf("groups %v, want nothing left but c", g.members)
	}
	g.clear()
	if len(g.members["two"]) > 0 || len(g.of) != 0 {
		t.Error("it is not empty after clear")
	}
}
