package attach

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestDriftCountsWhenListingsInARowShowIt(t *testing.T) {
	const other DriftKind = "other"
	type found = map[types.UID]DriftKind
	a, b, both := found{"a": DriftMissing}, found{"b": DriftMissing}, found{"b": DriftMissing, "a": DriftMissing}
	for _, tc := range []struct {
		name          string
		confirmations int
		listings      []found
		want          [][]types.UID // after each listing
		pending       bool          // after the last
	}{
		{"once is enough", 1, []found{a, a}, [][]types.UID{{"a"}, {"a"}}, false},
		{"seen once", 2, []found{a}, [][]types.UID{nil}, true},
		{"seen twice", 2, []found{a, a}, [][]types.UID{nil, {"a"}}, false},
		{"three are needed", 3, []found{a, a, a}, [][]types.UID{nil, nil, {"a"}}, false},
		{"counts anew after it was confirmed", 2, []found{a, a, a, a}, [][]types.UID{nil, {"a"}, nil, {"a"}}, false},
		{"agreed in between", 2, []found{a, {}, a}, [][]types.UID{nil, nil, nil}, true},
		{"said to agree in between", 2, []found{a, {"a": DriftNone}, a}, [][]types.UID{nil, nil, nil}, true},
		{"each for itself", 2, []found{a, both, b}, [][]types.UID{nil, {"a"}, {"b"}}, false},
		{"several at once", 2, []found{both, both}, [][]types.UID{nil, {"a", "b"}}, false},
		{"another difference", 2, []found{a, {"a": other}, {"a": other}}, [][]types.UID{nil, nil, {"a"}}, false},
		{"nothing found", 2, []found{{}, nil}, [][]types.UID{nil, nil}, false},
		{"gone", 2, []found{a, {}}, [][]types.UID{nil, nil}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c DriftCount[types.UID]
			var got [][]types.UID
			for _, listing := range tc.listings {
				confirmed := c.Add(listing, tc.confirmations)
				slices.Sort(confirmed)
				got = append(got, confirmed)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("confirmed (-want +got):\n%s", diff)
			}
			if c.Pending() != tc.pending {
				t.Errorf("pending: %v, want %v", c.Pending(), tc.pending)
			}
		})
	}
}

func TestDriftCountKeepsNothingOfWhatIsGone(t *testing.T) {
	var c DriftCount[types.UID]
	c.Add(map[types.UID]DriftKind{"a": DriftMissing, "b": DriftMissing, "c": DriftNone}, 3)
	c.Add(map[types.UID]DriftKind{"b": DriftMissing}, 3)
	if len(c.streaks) != 1 {
		t.Errorf("kept %v, want only b", c.streaks)
	}
}
