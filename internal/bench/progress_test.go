package bench

import (
	"testing"
	"time"
)

func TestProgressLinesHaveUnitsAndTimeLeft(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{turnText(0, 3, 0, 2, "hub", 0), "round 1 of 3, turn 1 of 2: hub; this case: time left unknown"},
		{turnText(1, 3, 1, 2, "hub", 30*time.Second), "round 2 of 3, turn 2 of 2: hub; this case: about 30s left"},
		{changeText(150, 500, "attached", 15*time.Second), "150 of 500 volumes are attached, 10 per second, about 35s left"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
