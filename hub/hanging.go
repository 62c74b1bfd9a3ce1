package hub

import (
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// hangsAfter is the age from which a call counts as hanging.
	hangsAfter = time.Minute
	// hangingEvery is the interval of the log lines about a driver whose calls hang.
	hangingEvery = time.Minute
)

// hangingCheck returns the search for calls that hang. Until the timeout of a call, which may be hours, nothing else
// would be logged. It runs when the oldest call begins to hang, and then each minute.
func (l *leader) hangingCheck() *periodic {
	logged := false // by the last run
	p := &periodic{run: func(context.Context) { logged = l.logHanging(time.Now()) }}
	p.pause = func(registry.Settings) time.Duration {
		if logged {
			return hangingEvery
		}
		next := hangingEvery
		oldest, _, since := l.unanswered()
		for _, begin := range []time.Time{oldest.Since, since} {
			if !begin.IsZero() {
				next = min(next, begin.Add(hangsAfter).Sub(p.since))
			}
		}
		return next
	}
	return p
}

// unanswered returns the oldest call in flight, zero if there is none, how many there are, and since when the driver has
// answered none.
func (l *leader) unanswered() (oldest queue.Flight, all int, since time.Time) {
	for _, call := range l.queue.Calls() {
		if all++; oldest.Since.IsZero() || call.Since.Before(oldest.Since) {
			oldest = call
		}
	}
	return oldest, all, l.session().unansweredSince(l.queue.Has)
}

// logHanging logs the oldest call if it hangs, or that the driver answers no call although each call ends at its
// timeout before it hangs. It reports whether it has logged.
func (l *leader) logHanging(now time.Time) bool {
	oldest, all, unanswered := l.unanswered()
	switch {
	case hangs(oldest.Since, now):
		logger := l.logger.WithValues("volumeAttachment", oldest.VolumeAttachment)
		if va := l.overlay.Attachment(oldest.VolumeAttachment); va != nil {
			logger = l.work.VolumeLogger(va)
		}
		logger.Info(oldest.Method+" unanswered", "for", now.Sub(oldest.Since).Round(time.Second), "callsInFlight", all)
	case !unanswered.IsZero() && now.Sub(unanswered) >= hangsAfter:
		l.logger.Info("Driver answers no call", "for", now.Sub(unanswered).Round(time.Second), "callsInFlight", all)
	default:
		return false
	}
	return true
}

// hangs reports whether a call hangs that began at a time, zero if there is none.
func hangs(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= hangsAfter }
