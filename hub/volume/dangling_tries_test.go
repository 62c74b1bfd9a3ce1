package volume_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

func TestDetachOfADanglingPublicationIsGivenUpOnlyAfterDefinitiveAnswersForLong(t *testing.T) {
	const stuckAfter = time.Hour
	notFound, invalid, other := status.Error(codes.NotFound, "volume"), status.Error(codes.InvalidArgument, "node"), status.Error(codes.Unavailable, "later")
	times := func(n int, err error) []error { return slices.Repeat([]error{err}, n) }
	for name, c := range map[string]struct {
		errs      []error       // one at a time, ten minutes apart
		noSecret  bool          // the secret of the calls is not known
		connected time.Duration // before the first
		want      bool
	}{
		"not found for long":                      {times(10, notFound), false, 0, true},
		"not found, but not often enough":         {times(9, notFound), false, 0, false},
		"a driver that has just started":          {times(10, notFound), false, -80 * time.Minute, false},
		"a driver that restarts for a day":        {times(150, notFound), false, -1490 * time.Minute, true},
		"invalid, with the secret":                {times(10, invalid), false, 0, true},
		"invalid, without the secret":             {times(10, invalid), true, 0, false},
		"other errors":                            {times(100, other), false, 0, false},
		"another error between":                   {append(append(times(9, notFound), other), times(9, notFound)...), false, 0, false},
		"another error, and definitive ones then": {append(times(9, other), times(10, notFound)...), false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			table := openTable(1, 0, true)
			r := recorded("a")
			r.SecretKnown = !c.noSecret
			begin := time.Now()
			table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, r, begin)
			now := begin
			var u volume.Dangling
			for _, err := range c.errs {
				u, _ = table.DanglingFailed(r.Target, err, true, now)
				now = now.Add(10 * time.Minute)
			}
			now = now.Add(-10 * time.Minute)
			if got := u.Hopeless(stuckAfter, begin.Add(-c.connected), now); got != c.want || u.Failures != len(c.errs) {
				t.Errorf("hopeless: %v after %d failures, want %v after %d", got, u.Failures, c.want, len(c.errs))
			}
		})
	}
}

func TestWhatWasNotTriedHasNotFailed(t *testing.T) {
	table, now := openTable(1, 0, true), time.Now()
	table.ObserveDeletion(volume.Identity{Name: "gone", UID: "0"}, recorded("a"), now)
	u, ok := table.DanglingFailed(at("a"), errors.New("unclear"), false, now)
	if !ok || u.Error != "unclear" || u.Failures != 0 || !u.Failed.IsZero() {
		t.Errorf("error %q after %d failures at %v, want why it waits, which is no failure", u.Error, u.Failures, u.Failed)
	}
}
