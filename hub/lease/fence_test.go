package lease

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFenceLeavesTimeForTheCall(t *testing.T) {
	const duration, retry = 3 * time.Second, 500 * time.Millisecond // margin 150ms
	for name, c := range map[string]struct {
		age, longest time.Duration
		want         bool
	}{
		"fresh":                              {0, 2 * time.Second, true},
		"call ends as the margin begins":     {850 * time.Millisecond, 2 * time.Second, true},
		"call would end within the margin":   {851 * time.Millisecond, 2 * time.Second, false},
		"short write late":                   {2800 * time.Millisecond, 50 * time.Millisecond, true},
		"short write too late":               {2801 * time.Millisecond, 50 * time.Millisecond, false},
		"call longer than a lease":           {2849 * time.Millisecond, time.Minute, true},
		"call longer than a lease, too late": {2850 * time.Millisecond, time.Minute, false},
		"nothing within the margin":          {2850 * time.Millisecond, 0, false},
		"after the end":                      {time.Hour, 0, false},
	} {
		if got := endsInTime(fenceMargin(duration), c.age, c.longest, duration, retry); got != c.want {
			t.Errorf("%s: may begin is %v", name, got)
		}
	}
}

func TestACallThatFitsMayBeginRightAfterARenewal(t *testing.T) {
	for duration := time.Second; duration <= time.Minute; duration += time.Second {
		retry := duration / 6
		for longest := time.Duration(0); longest < 2*duration; longest += 50 * time.Millisecond {
			// A renewal takes the margin at most, then the next comes after the retry period.
			if !endsInTime(fenceMargin(duration), fenceMargin(duration), longest, duration, retry) {
				t.Fatalf("duration %v: a call of %v may not begin right after a renewal", duration, longest)
			}
		}
	}
}

func TestAgeIsThatOfTheMorePessimisticClock(t *testing.T) {
	then := now()
	frozen := instant{monotonic: then.monotonic.Add(time.Second), wall: then.wall.Add(time.Hour)}
	if got := frozen.since(then); got != time.Hour {
		t.Errorf("after the monotonic clock stood still: %v", got)
	}
	setBack := instant{monotonic: then.monotonic.Add(time.Minute), wall: then.wall.Add(-time.Hour)}
	if got := setBack.since(then); got != time.Minute {
		t.Errorf("after the wall clock was set back: %v", got)
	}
}

func TestFenceClosesWithoutRenewalAndOpensWithOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := NewTerm(3*time.Second, 500*time.Millisecond, "", false)
		if err := term.Begin(2 * time.Second); err != nil {
			t.Errorf("fresh: %v", err)
		}
		time.Sleep(time.Second)
		if err := term.Begin(2 * time.Second); !errors.Is(err, ErrFenced) {
			t.Errorf("a second after the renewal: %v", err)
		}
		if err := term.Begin(100 * time.Millisecond); err != nil {
			t.Errorf("short write a second after the renewal: %v", err)
		}
		term.renew(now())
		if err := term.Begin(2 * time.Second); err != nil {
			t.Errorf("renewed: %v", err)
		}
		term.lose()
		term.lose() // twice is once
		if err := term.Begin(0); !errors.Is(err, ErrFenced) {
			t.Errorf("lost: %v", err)
		}
		<-term.Lost().Done()
	})
}

func TestWhatBeginHasAllowedMayTakeAMomentToGoOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := NewTerm(3*time.Second, 500*time.Millisecond, "", false)
		time.Sleep(850 * time.Millisecond) // the last moment at which 2 s fit
		if err := errors.Join(term.Begin(2*time.Second), term.Confirm(2*time.Second)); err != nil {
			t.Errorf("at once: %v", err)
		}
		time.Sleep(75 * time.Millisecond)
		if err := term.Confirm(2 * time.Second); err != nil {
			t.Errorf("half of the margin later: %v", err)
		}
		time.Sleep(time.Millisecond)
		if err := term.Confirm(2 * time.Second); !errors.Is(err, ErrFenced) {
			t.Errorf("after that: %v, want it to stay", err)
		}
		term.renew(now())
		term.lose()
		if err := term.Confirm(0); !errors.Is(err, ErrFenced) {
			t.Errorf("lost: %v", err)
		}
	})
}

func TestWithoutElectionNothingIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := Always()
		time.Sleep(1000 * time.Hour)
		if err := term.Begin(time.Hour); err != nil {
			t.Error(err)
		}
		if !term.Continues() || term.ResourceVersion() != "" || term.isLost() {
			t.Errorf("%+v", term)
		}
	})
}
