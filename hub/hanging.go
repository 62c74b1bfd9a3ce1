package hub

import (
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// hangsAfter is the age from which a call counts as hanging.
	hangsAfter = time.Minute
	// hangingEvery is the interval of the log lines about a driver whose calls hang.
	hangingEvery = time.Minute
	// hangingLook bounds how late the first of these lines is.
	hangingLook = 10 * time.Second
)

// hangingCheck returns the periodic search for calls that hang. Until the timeout of a call, which may be hours, nothing
// else would be logged.
func (l *leader) hangingCheck() *periodic {
	var logged time.Time
	return &periodic{pause: func(registry.Settings) time.Duration { return hangingLook }, run: func(context.Context) {
		if now := time.Now(); now.Sub(logged) >= hangingEvery && l.logHanging(now) {
			logged = now
		}
	}}
}

// logHanging logs the oldest call if it hangs, or that the driver answers no call although each call ends at its
// timeout before it hangs. It reports whether it has logged.
func (l *leader) logHanging(now time.Time) bool {
	byLane, all := l.calls.oldest()
	var oldest status.Call
	for _, call := range byLane {
		if oldest.Since.IsZero() || !call.Since.IsZero() && call.Since.Before(oldest.Since) {
			oldest = call
		}
	}
	unanswered := l.calls.unansweredSince(l.session())
	switch {
	case hangs(oldest, now):
		logger := l.logger.WithValues("volumeAttachment", oldest.VolumeAttachment)
		if va := l.overlay.Attachment(oldest.VolumeAttachment); va != nil {
			logger = l.volumeLogger(va)
		}
		logger.Info(oldest.Method+" unanswered", "for", now.Sub(oldest.Since).Round(time.Second), "callsInFlight", all)
	case !unanswered.IsZero() && now.Sub(unanswered) >= hangsAfter:
		l.logger.Info("Driver answers no call", "for", now.Sub(unanswered).Round(time.Second), "callsInFlight", all)
	default:
		return false
	}
	return true
}

// hangs reports whether a call hangs. The zero call does not.
func hangs(call status.Call, now time.Time) bool {
	return !call.Since.IsZero() && now.Sub(call.Since) >= hangsAfter
}
