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
		name     string
		listings []found
		want     [][]types.UID // after each listing
		pending  bool          // after the last
	}{
		{"seen once", []found{a}, [][]types.UID{nil}, true},
		{"seen twice", []found{a, a}, [][]types.UID{nil, {"a"}}, false},
		{"counts anew after it was confirmed", []found{a, a, a, a}, [][]types.UID{nil, {"a"}, nil, {"a"}}, false},
		{"agreed in between", []found{a, {}, a}, [][]types.UID{nil, nil, nil}, true},
		{"said to agree in between", []found{a, {"a": DriftNone}, a}, [][]types.UID{nil, nil, nil}, true},
		{"each for itself", []found{a, both, b}, [][]types.UID{nil, {"a"}, {"b"}}, false},
		{"several at once", []found{both, both}, [][]types.UID{nil, {"a", "b"}}, false},
		{"another difference", []found{a, {"a": other}, {"a": other}}, [][]types.UID{nil, nil, {"a"}}, false},
		{"nothing found", []found{{}, nil}, [][]types.UID{nil, nil}, false},
		{"gone", []found{a, {}}, [][]types.UID{nil, nil}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c DriftCount[types.UID]
			var got [][]types.UID
			for _, listing := range tc.listings {
				confirmed := c.Add(listing)
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
	c.Add(map[types.UID]DriftKind{"a": DriftMissing, "b": DriftMissing, "c": DriftNone})
	c.Add(map[types.UID]DriftKind{"d": DriftMissing})
	if len(c.once) != 1 {
		t.Errorf("kept %v, want only d", c.once)
	}
}
