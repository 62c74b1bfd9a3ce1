package hub

import (
	"context"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// every calls look now and then until ctx ends. pause is the time from the begin to the first look, and
// from the end of each look to the next, by the settings of the moment. It blocks until then.
func (m *manager) every(ctx context.Context, pause func(registry.Settings) time.Duration, look func(context.Context)) {
	for since := time.Now(); ; since = time.Now() {
		m.await(ctx, func(s driverState) (time.Duration, bool) {
			left := pause(s.spec.Settings) - time.Since(since)
			return left, left <= 0
		})
		if ctx.Err() != nil {
			return
		}
		look(ctx)
	}
}
