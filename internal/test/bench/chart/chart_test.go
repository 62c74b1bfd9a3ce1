package chart

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNumbersHaveCommasAndFourDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.05: "0.05", 1.23456: "1.235", 999: "999", 1000: "1,000", 100_000: "100,000", 1_234_567: "1,235,000", 0.30000000000000004: "0.3",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

func TestAxesHaveRoundNumbers(t *testing.T) {
	for high, want := range map[float64][]float64{
		47: {0, 10, 20, 30, 40}, 100_000: {0, 20_000, 40_000, 60_000, 80_000, 100_000}, 0.03: {0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03},
	} {
		if got := ticks(high); !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%v: %v, want %v", high, got, want)
		}
	}
}

func TestLongTextsAreWrapped(t *testing.T) {
	got := wrap("one two three  four extraordinarily five", 60, 10)
	if diff := cmp.Diff([]string{"one two", "three four", "extraordinarily", "five"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestPicturesOfBothThemesDifferInColoursOnly(t *testing.T) {
	p := Picture{Title: "A & B", About: "<both>", Legend: []Key{{Name: "a", Ink: Data}}, Panels: []Panel{
		{Title: "bars", Bars: []Group{{Name: "g", Bars: []Bar{{Value: 5, Ink: Data, Text: "5"}, {Value: 3, Ink: Data + 3}}}}},
		{Title: "nothing"},
	}}
	light, dark := string(p.SVG(Light)), string(p.SVG(Dark))
	if light == dark {
		t.Error("the colours are the same")
	}
	for i := range Light.colors {
		light = strings.ReplaceAll(light, `"`+Light.colors[i]+`"`, `"ink"`)
		dark = strings.ReplaceAll(dark, `"`+Dark.colors[i]+`"`, `"ink"`)
	}
	if diff := cmp.Diff(light, dark); diff != "" {
		t.Errorf("-light +dark\n%s", diff)
	}
	for _, want := range []string{`<title id="title">A &amp; B</title>`, `<desc id="about">&lt;both&gt;</desc>`} {
		if !strings.Contains(light, want) {
			t.Errorf("%s is not in the picture", want)
		}
	}
}
