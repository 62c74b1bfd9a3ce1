package snapshot_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore/snapshot"
)

func plan[T any](t *testing.T, rules ...snapshot.Rule) *snapshot.Plan[T] {
	t.Helper()
	p, err := snapshot.Of[T](rules...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// same reports whether two values have the same key.
func same[T any](p *snapshot.Plan[T], a, b *T) bool {
	return string(p.Append(nil, a)) == string(p.Append(nil, b))
}

type inner struct {
	Name  string
	Count int
}

type outer struct {
	First  inner
	Many   []inner
	Into   *inner // the middle of another value
	Other  *inner
	Maps   map[string]*inner
	Same   map[string]*inner
	Nested map[[2]int]map[string][]string
	Self   *outer
	Long   [20]*int
	hidden []string
	tail   []string
}

func full() *outer {
	x := &outer{First: inner{"first", 1}, Many: []inner{{"a", 1}, {"b", 2}, {"c", 3}}, Nested: map[[2]int]map[string][]string{{1, 2}: {"x": {"y"}}, {1, 3}: nil},
		hidden: []string{"p", "q", "r", "s"}}
	x.Into = &x.First
	x.Other = &x.Many[1]
	x.Maps = map[string]*inner{"first": &x.First, "c": &x.Many[2], "own": {"own", 4}}
	x.Same = x.Maps
	x.Self = x
	x.Long[19] = &x.Many[0].Count
	x.tail = x.hidden[2:]
	return x
}

func TestKeyTellsValuesApart(t *testing.T) {
	p := plan[outer](t)
	if !same(p, full(), full()) {
		t.Error("keys do not follow from the contents")
	}
	for name, change := range map[string]func(x *outer){
		"string":               func(x *outer) { x.First.Name = "other" },
		"number":               func(x *outer) { x.Many[2].Count++ },
		"pointer to an equal":  func(x *outer) { x.Other = &inner{"b", 2} },
		"pointer elsewhere":    func(x *outer) { x.Other = &x.Many[0] },
		"nil pointer":          func(x *outer) { x.Other = nil },
		"map that is equal":    func(x *outer) { x.Same = map[string]*inner{"first": &x.First, "c": &x.Many[2], "own": x.Maps["own"]} },
		"map key":              func(x *outer) { x.Nested[[2]int{3, 1}] = nil },
		"map in a map":         func(x *outer) { x.Nested[[2]int{1, 2}]["x"][0] = "z" },
		"nil map":              func(x *outer) { x.Nested[[2]int{1, 3}] = map[string][]string{} },
		"hidden":               func(x *outer) { x.hidden[0] = "z" },
		"slice that is longer": func(x *outer) { x.hidden = x.hidden[:3] },
	} {
		x := full()
		change(x)
		if same(p, x, full()) {
			t.Errorf("%s: the keys are equal", name)
		}
	}
}

func TestKeyHasEmptySlicesAsNil(t *testing.T) {
	type maps struct {
		M map[string]int
		S []int
	}
	p := plan[maps](t)
	if !same(p, &maps{}, &maps{S: []int{}}) {
		t.Error("an empty slice and nil differ")
	}
	if same(p, &maps{}, &maps{M: map[string]int{}}) {
		t.Error("an empty map is nil")
	}
}

func TestRulesForKeys(t *testing.T) {
	type counted struct {
		Came, Served []uint64
		RV           string
		Tries        int
		At, Until    time.Time
		Note         string
		On           *inner
	}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	x := func(change func(*counted)) *counted {
		c := &counted{Came: []uint64{0, 7, 9}, Served: []uint64{8, 8}, RV: "99", Tries: 5, At: at, Note: "note", On: &inner{"a", 3}}
		change(c)
		return c
	}
	p := plan[counted](t, snapshot.Rank("uint64"), snapshot.Rank("snapshot_test.counted.RV"), snapshot.Saturate(3, "snapshot_test.counted.Tries"),
		snapshot.Zero("time.Time"), snapshot.Skip("snapshot_test.counted.Note"), snapshot.Share("snapshot_test.counted.On"))
	for name, c := range map[string]struct {
		change func(*counted)
		same   bool
	}{
		"nothing":             {func(c *counted) {}, true},
		"same order":          {func(c *counted) { c.Came, c.Served = []uint64{0, 70, 90}, []uint64{80, 80} }, true},
		"other order":         {func(c *counted) { c.Came[2] = 8 }, false},
		"was zero":            {func(c *counted) { c.Came[0] = 1 }, false},
		"only one":            {func(c *counted) { c.RV = "100" }, true},
		"saturated":           {func(c *counted) { c.Tries = 3 }, true},
		"below":               {func(c *counted) { c.Tries = 2 }, false},
		"later":               {func(c *counted) { c.At = at.Add(1) }, true},
		"zero time":           {func(c *counted) { c.At = time.Time{} }, false},
		"skipped":             {func(c *counted) { c.Note = "" }, true},
		"shared, equal":       {func(c *counted) { c.On = &inner{"a", 3} }, true},
		"shared, not equal":   {func(c *counted) { c.On = &inner{"a", 4} }, false},
		"shared, nil":         {func(c *counted) { c.On = nil }, false},
		"zero time elsewhere": {func(c *counted) { c.Until = at }, false},
	} {
		if same(p, x(func(*counted) {}), x(c.change)) != c.same {
			t.Errorf("%s: want the same key: %v", name, c.same)
		}
	}
}

func TestSharedObjectsKeepTheirRanks(t *testing.T) {
	type object struct{ RV string }
	type cache struct {
		Objects map[string]*object
		Last    string
	}
	p := plan[cache](t, snapshot.Share("*snapshot_test.object"), snapshot.Rank("snapshot_test.object.RV", "snapshot_test.cache.Last"))
	x := func(a, b, last string) *cache { return &cache{map[string]*object{"a": {a}, "b": {b}}, last} }
	if !same(p, x("9", "10", "10"), x("98", "105", "105")) {
		t.Error("the same order has other keys")
	}
	if same(p, x("9", "10", "10"), x("98", "105", "106")) || same(p, x("9", "10", "10"), x("10", "9", "10")) {
		t.Error("another order has the same key")
	}
}

func TestPlanNamesWhatNeedsARule(t *testing.T) {
	type deep struct{ F func() }
	type strange struct {
		Mu   sync.RWMutex
		C    chan int
		Many map[string][]*deep
		Any  any
		M    map[*int]bool
	}
	_, err := snapshot.Of[strange](snapshot.Share("snapshot_test.strange.Gone"))
	for _, want := range []string{
		"snapshot_test.strange.Mu (sync.RWMutex): ", "snapshot_test.strange.C (chan int): ", "snapshot_test.strange.Many[][].F (func()): ",
		"snapshot_test.strange.Any (interface {}): ", "snapshot_test.strange.M (map[*int]bool): ", "the rule for snapshot_test.strange.Gone applies to nothing",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
