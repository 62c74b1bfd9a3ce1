package deploy_test

import (
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"
)

// pairwise returns sets of values such that any two switches of the chart are both off in one set, both on in another,
// and on and off in each way in others: switch i is bit b of i in one set, and the opposite in another. hostSockets is off where
// openshift is on: the chart refuses both.
func pairwise(t *testing.T) []chartValues {
	t.Helper()
	switches := booleans(readValues(t, "chart/values.yaml"), "")
	if len(switches) < 15 {
		t.Fatalf("found only %v", switches)
	}
	sets := []func(i int) bool{func(int) bool { return false }, func(int) bool { return true }}
	for b := range bits.Len(uint(len(switches) - 1)) {
		sets = append(sets, func(i int) bool { return i>>b&1 == 1 }, func(i int) bool { return i>>b&1 == 0 })
	}
	var all []chartValues
	for _, on := range sets {
		v := chartValues{}
		for i, path := range switches {
			v = mergeValues(v, at(path, on(i)))
		}
		if v["openshift"] == true {
			v = mergeValues(v, at("hostSockets.enabled", false))
		}
		all = append(all, v)
	}
	return all
}

// booleans returns the paths of the values that are true or false.
func booleans(v chartValues, prefix string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		switch value := v[key].(type) {
		case bool:
			all = append(all, prefix+key)
		case map[string]any:
			all = append(all, booleans(value, prefix+key+".")...)
		}
	}
	return all
}

// at returns values with one value at a path such as proxies.enabled.
func at(path string, value any) chartValues {
	first, rest, found := strings.Cut(path, ".")
	if !found {
		return chartValues{first: value}
	}
	return chartValues{first: at(rest, value)}
}
