package torture

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// heapOver makes samples of a run of 20 minutes, one every five seconds, with so much heap,
// in MiB, after so many minutes.
func heapOver(heap func(minutes float64) float64) *SoakReport {
	r := &SoakReport{}
	for at := time.Duration(0); at <= 20*time.Minute; at += 5 * time.Second {
		r.samples = append(r.samples, testbed.Vitals{Heap: int64(heap(at.Minutes()) * mebibyte)})
	}
	return r
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
			r := heapOver(test.heap)
			if r.judge(); (len(r.Grew) > 0) != test.grew || test.grew && !slices.Equal(r.Grew, []string{"heap after GC"}) {
				t.Errorf("grew: %q, want %v\n%s", r.Grew, test.grew, r.Text)
			}
		})
	}
}

func TestASoakGivesSamplesAndAVerdict(t *testing.T) {
	t.Parallel()
	o := options(t, false)
	o.Drivers = 1
	r, err := Soak(t.Context(), o, leastSamples*sampleEvery)
	if err != nil {
		t.Fatal(err)
	}
	first, last := r.samples[0], r.samples[len(r.samples)-1]
	if len(r.samples) < leastSamples || last.Attached <= first.Attached || last.Detached == 0 {
		t.Errorf("%d samples, the first %+v, the last %+v: want some with attaches and detaches", len(r.samples), first, last)
	}
	for _, v := range r.samples {
		if v.Goroutines == 0 || v.RSS == 0 || v.Heap == 0 || v.Descriptors == 0 {
			t.Fatalf("sample %+v: want no zeros", v)
		}
	}
	for _, q := range quantities {
		if !strings.Contains(r.Text, q.name) {
			t.Errorf("%s is not in the report:\n%s", q.name, r.Text)
		}
	}
}
