package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// role is what one driver of a scene is like.
type role struct {
	short    string        // names its files and its volumes
	does     string        // for people
	latency  time.Duration // of each publish and unpublish
	failures int           // of the first publishes, and unpublishes, of each volume
	hangs    bool          // publishes wait until they are released
	timeout  time.Duration // in drivers.yaml; 0: that of the defaults
}

// cast are the drivers of every scene.
var cast = []role{
	{short: "fast", does: "answers at once"},
	{short: "slow", does: "takes 2s for each call", latency: 2 * time.Second},
	{short: "flaky", does: "answers Unavailable twice for each volume, then works", failures: 2},
	// Its calls must not be cut off: then they would be made again.
	{short: "hanging", does: "answers no publish until it is let go", hangs: true, timeout: time.Hour},
}

// driver is the CSI name.
func (r role) driver() string { return r.short + ".demo.csi.example.com" }

func (r role) socket(dir string) string  { return filepath.Join(dir, r.short+".sock") }
func (r role) control(dir string) string { return filepath.Join(dir, r.short+"-control.sock") }
func (r role) log(dir string) string     { return filepath.Join(dir, r.short+".log") }

// args are those of `testbed driver`.
func (r role) args(dir string) []string {
	return []string{"--name", r.driver(), "--endpoint", "unix://" + r.socket(dir), "--control", "unix://" + r.control(dir)}
}

// knobs make a driver that has these volumes behave as its role says.
func (r role) knobs(volumes []string) fakecsi.Knobs {
	var k fakecsi.Knobs
	if r.latency > 0 {
		k.Latency = map[fakecsi.Method]fakecsi.Latency{}
	}
	for _, m := range attachMethods {
		if r.latency > 0 {
			k.Latency[m] = fakecsi.Latency{Base: r.latency}
		}
		if r.failures == 0 {
			continue
		}
		for _, v := range volumes {
			k.Fail = append(k.Fail, fakecsi.Fault{Method: m, Volume: v, Code: codes.Unavailable, Count: r.failures})
		}
	}
	if r.hangs {
		k.Hang = []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}
	}
	return k
}

// driversFile is the drivers.yaml for these drivers, with their sockets in dir.
func driversFile(roles []role, dir string) string {
	var b strings.Builder
	b.WriteString(`apiVersion: attach-hub/v1alpha1
kind: DriverConfig
defaults:
  timeout: 1m
  retry:
    initial: 500ms
    max: 5s
drivers:
`)
	for _, r := range roles {
		fmt.Fprintf(&b, "  # It %s.\n  - name: %s\n    endpoint: %q\n", r.does, r.driver(), "unix://"+r.socket(dir))
		if r.timeout > 0 {
			fmt.Fprintf(&b, "    timeout: %v\n", r.timeout)
		}
	}
	return b.String()
}
