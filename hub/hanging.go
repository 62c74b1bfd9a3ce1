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
	// hangingEvery is the interval of the log lines about hanging calls.
	hangingEvery = time.Minute
)

// hangingCheck returns the periodic search for hanging calls. Until the timeout of a call, which may be hours, nothing else
// would be logged.
func (l *leader) hangingCheck() *periodic {
	return &periodic{pause: func(registry.Settings) time.Duration { return hangingEvery }, run: l.logHanging}
}

// logHanging logs the oldest call if it hangs.
func (l *leader) logHanging(context.Context) {
	byLane, all := l.calls.oldest()
	var oldest status.Call
	for _, call := range byLane {
		if oldest.Since.IsZero() || !call.Since.IsZero() && call.Since.Before(oldest.Since) {
			oldest = call
		}
	}
	if now := time.Now(); hangs(oldest, now) {
		logger := l.logger.WithValues("volumeAttachment", oldest.VolumeAttachment)
		if va := l.overlay.Attachment(oldest.VolumeAttachment); va != nil {
			logger = l.volumeLogger(va)
		}
		logger.Info(oldest.Method+" unanswered", "for", now.Sub(oldest.Since).Round(time.Second), "callsInFlight", all)
	}
}

// hangs reports whether a call hangs. The zero call does not.
func hangs(call status.Call, now time.Time) bool {
	return !call.Since.IsZero() && now.Sub(call.Since) >= hangsAfter
}
