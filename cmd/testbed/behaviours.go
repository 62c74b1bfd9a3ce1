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
	settings string        // in drivers.yaml. The mode is there for users to edit
}

// behaviours are the drivers of every scene.
var behaviours = []behaviour{
	{short: "fast", does: "answers at once", settings: "mode: active"},
	{short: "slow", does: "takes 2s for each call", latency: 2 * time.Second, settings: "mode: active"},
	{short: "flaky", does: "answers Unavailable twice for each volume, then works", failures: 2, settings: "mode: active"},
	// Its calls must not be cut off: then they would be made again.
	{short: "hanging", does: "answers no publish until it is released", hangs: true, settings: "mode: active, timeout: 1h"},
}

// attachMethods are the two methods that attach and detach.
var attachMethods = []fakecsi.Method{fakecsi.ControllerPublishVolume, fakecsi.ControllerUnpublishVolume}

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

// configDefaults returns the defaults in drivers.yaml.
func configDefaults(stuckAfter time.Duration) string {
	return fmt.Sprintf("{timeout: 1m, stuckAfter: %v, retry: {initial: 500ms, max: 5s}}", stuckAfter)
}

// settings returns the settings of one driver of a scene in drivers.yaml.
func settings(d *testbed.Driver) string {
	for _, b := range behaviours {
		if b.driver() == d.Name {
			return b.settings
		}
	}
	return ""
}
