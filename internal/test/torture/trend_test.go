package torture

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// heapOver makes samples of a run of 20 minutes, one every five seconds, with so much heap,
// in MiB, after so many minutes.
func heapOver(heap func(minutes float64) float64) []Sample {
	var samples []Sample
	for at := time.Duration(0); at <= 20*time.Minute; at += 5 * time.Second {
		samples = append(samples, Sample{At: at, Vitals: testbed.Vitals{Heap: int64(heap(at.Minutes()) * mebibyte)}})
	}
	return samples
}

func TestGrowthIsToldFromNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(wide float64) float64 { return wide * random.NormFloat64() }
	for _, test := range []struct {
		name string
		heap func(minutes float64) float64
		grew bool
	}{
		{"flat", func(float64) float64 { return 30 }, false},
		{"flat, with noise", func(float64) float64 { return 30 + noise(3) }, false},
		{"flat, with a few huge values at the end", func(m float64) float64 {
			if m > 19 {
				return 300
			}
			return 30 + noise(1)
		}, false},
		{"grows while it warms up", func(m float64) float64 { return 30 - 20*math.Exp(-m) + noise(1) }, false},
		{"falls", func(m float64) float64 { return 30 - m/2 + noise(1) }, false},
		{"sawtooth of 50 seconds", func(m float64) float64 { return 20 + 20*math.Mod(m, 5./6) }, false},
		{"sawtooth of three minutes", func(m float64) float64 { return 20 + 5*math.Mod(m, 3) + noise(1) }, false},
		{"slow leak", func(m float64) float64 { return 30 + m/6 }, true},
		{"slow leak, within the noise", func(m float64) float64 { return 30 + m/4 + noise(2) }, true},
		{"slow leak under a sawtooth", func(m float64) float64 { return 20 + m/2 + 10*math.Mod(m, 0.9) }, true},
		{"steps", func(m float64) float64 { return 30 + 1.5*math.Floor(m/5) + noise(0.5) }, true},
		{"a jump in the last third", func(m float64) float64 {
			if m > 15 {
				return 40 + noise(1)
			}
			return 30 + noise(1)
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, f := range Judge(heapOver(test.heap)) {
				if want := test.grew && f.Name == "heap after GC"; f.Grew != want {
					t.Errorf("%s grew: %v, want %v: level %.2f, rise %.2f, allowed %.2f", f.Name, f.Grew, want, f.Level, f.Rise, f.Allowed)
				}
			}
		})
	}
}

func TestTrendOfMorePointsThanItIsMadeOfIsTheSame(t *testing.T) {
	var points []Point
	for i := range 10_000 {
		points = append(points, Point{time.Duration(i) * time.Second, 100 + float64(i)/100})
	}
	got := trendOf(points)
	if math.Abs(got.Slope-0.01) > 1e-6 || math.Abs(got.Rise-100) > 1 {
		t.Errorf("got %+v, want a slope of 0.01 and a rise of 100", got)
	}
}

func TestRatesAreThoseBetweenTwoSamples(t *testing.T) {
	samples := []Sample{
		{At: 0, Vitals: testbed.Vitals{Attached: 100, Detached: 90, Failed: 5, CPU: time.Second}},
		{At: 2 * time.Second, Vitals: testbed.Vitals{Attached: 110, Detached: 100, Failed: 6, CPU: 2 * time.Second}},
	}
	want := map[string]float64{"operations": 10, "failed tries": 0.5, "processors in use": 0.5}
	for _, q := range quantities {
		if value, ok := want[q.Name]; ok && q.points(samples)[0].Value != value {
			t.Errorf("%s: %v, want %v", q.Name, q.points(samples)[0].Value, value)
		}
	}
}
