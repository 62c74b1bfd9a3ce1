package main

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// behaviour says how one driver of a scene behaves.
type behaviour struct {
	short    string        // names its socket and its volumes
	does     string        // description for users
	latency  time.Duration // of each publish and unpublish
	failures int           // of the first publishes, and unpublishes, of each volume
	hangs    bool          // publishes wait for a release
	timeout  time.Duration // in drivers.yaml; 0: that of the defaults
}

// behaviours are the drivers of every scene.
var behaviours = []behaviour{
	{short: "fast", does: "answers at once"},
	{short: "slow", does: "takes 2s for each call", latency: 2 * time.Second},
	{short: "flaky", does: "answers Unavailable twice for each volume, then works", failures: 2},
	// Its calls must not be cut off: then they would be made again.
	{short: "hanging", does: "answers no publish until it is let go", hangs: true, timeout: time.Hour},
}

// driver is the CSI name.
func (b behaviour) driver() string { return b.short + ".demo.csi.example.com" }

// knobs returns the knobs of a driver with these volumes.
func (b behaviour) knobs(volumes []string) fakecsi.Knobs {
	k := fakecsi.AttachLatency(fakecsi.Latency{Base: b.latency})
	for _, m := range attachMethods {
		if b.failures == 0 {
			continue
		}
		for _, v := range volumes {
			k.Fail = append(k.Fail, fakecsi.Fault{Method: m, Volume: v, Code: codes.Unavailable, Count: b.failures})
		}
	}
	if b.hangs {
		k.Hang = []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}
	}
	return k
}

// configDefaults returns the defaults in drivers.yaml. With stuckAfter 0 that setting is the hub's own.
func configDefaults(stuckAfter time.Duration) string {
	stuck := ""
	if stuckAfter > 0 {
		stuck = fmt.Sprintf("stuckAfter: %v, ", stuckAfter)
	}
	return "{timeout: 1m, " + stuck + "retry: {initial: 500ms, max: 5s}}"
}

// settings returns the settings of one driver of a scene in drivers.yaml. The mode is there for users to edit.
func settings(d *testbed.Driver) string {
	for _, r := range behaviours {
		if r.driver() == d.Name && r.timeout > 0 {
			return fmt.Sprintf("mode: active, timeout: %v", r.timeout)
		}
	}
	return "mode: active"
}
