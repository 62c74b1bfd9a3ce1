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
		0: "0", 0.05: "0.05", 1.23456: "1.235", 999: "999", 1000: "1,000", 100_000: "100,000", 1_234_567: "1,235,000", -2500: "-2,500", 0.30000000000000004: "0.3",
	} {
		if got := Number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

func TestAxesHaveRoundNumbers(t *testing.T) {
	for _, tt := range []struct {
		axis   Axis
		values []float64
		want   []float64
	}{
		{Axis{}, []float64{3, 47}, []float64{0, 10, 20, 30, 40}},
		{Axis{}, []float64{100_000}, []float64{0, 20_000, 40_000, 60_000, 80_000, 100_000}},
		{Axis{}, []float64{0.03, math.NaN(), math.Inf(1)}, []float64{0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03}},
		{Axis{End: 1}, []float64{0}, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{Axis{}, nil, []float64{0, 2, 4, 6, 8, 10}},
		{Axis{Log: true}, []float64{0.06, 0.9}, []float64{0.05, 0.1, 0.2, 0.5, 1}},
		{Axis{Log: true}, []float64{0.06, 20, 0, -1}, []float64{0.1, 1, 10}},
	} {
		got := tt.axis.over(tt.values, 100, 1).ticks()
		if !slices.EqualFunc(got, tt.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Errorf("%v: %v, want %v", tt.values, got, tt.want)
		}
	}
}

func TestValuesArePlacedAlongTheAxis(t *testing.T) {
	plain := Axis{}.over([]float64{50}, 200, 1)
	log := Axis{Log: true}.over([]float64{0.1, 10}, 200, 1)
	got := []float64{plain.place(0), plain.place(25), plain.place(50), log.place(0.1), log.place(1), log.place(10), log.place(0)}
	want := []float64{0, 100, 200, 0, 100, 200, 0}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-9 {
			t.Errorf("places %v, want %v", got, want)
			break
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
	p := Picture{Title: "A & B", About: "<both>", Legend: []Key{{Name: "a", Ink: Data}, Shaded("warm")}, Panels: []Panel{
		{Title: "lines", Shade: 1, Lines: []Line{{Ink: Data + 1, Dots: true, Points: []Point{{1, 2}, {3, math.NaN()}, {5, 6}}}}},
		{Title: "bars", Bars: []Group{{Name: "g", Bars: []Bar{{Parts: []Part{{3, Data}, {math.NaN(), Data + 1}, {2, Data + 9}}, Text: "5", Low: 4, High: 6}}}}},
		{Title: "nothing"},
	}}
	light, dark := string(p.SVG(Light)), string(p.SVG(Dark))
	if light == dark {
		t.Error("the colours are the same")
	}
	for i := range Ink(Data + DataInks) {
		light = strings.ReplaceAll(light, `"`+Light.color(i)+`"`, `"ink"`)
		dark = strings.ReplaceAll(dark, `"`+Dark.color(i)+`"`, `"ink"`)
	}
	if diff := cmp.Diff(light, dark); diff != "" {
		t.Errorf("-light +dark\n%s", diff)
	}
	for _, want := range []string{`<title id="title">A &amp; B</title>`, `<desc id="about">&lt;both&gt;</desc>`, "circle"} {
		if !strings.Contains(light, want) {
			t.Errorf("%s is not in the picture", want)
		}
	}
	if strings.Contains(light, "NaN") {
		t.Error("NaN is in the picture")
	}
}

func TestALogarithmicAxisMayBeginRightBelowARoundNumber(t *testing.T) {
	for _, v := range []float64{0.099995, 0.99999, 1, 9.9999} {
		if got := roundDown(v); got > v*1.001 || got < v/11 {
			t.Errorf("roundDown(%v) = %v", v, got)
		}
	}
}
