package progress

import (
	"testing"
	"time"
)

func TestTimeLeftFollowsFromThePace(t *testing.T) {
	for _, c := range []struct {
		elapsed     time.Duration
		done, whole float64
		want        string
	}{
		{time.Minute, 0, 10, "time left unknown"},
		{0, 5, 10, "time left unknown"},
		{10 * time.Second, 1, 4, "about 30s left"},
		{time.Minute, 3, 10, "about 2m20s left"},
		{time.Minute, 10, 10, "finishing"},
		{time.Minute, 12, 10, "finishing"},
	} {
		if got := Left(c.elapsed, c.done, c.whole); got != c.want {
			t.Errorf("%v for %v of %v: %q, want %q", c.elapsed, c.done, c.whole, got, c.want)
		}
	}
}
