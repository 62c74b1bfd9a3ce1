package status

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Headline returns the first line of the page and of the subcommand status, what matters most first: "drivers.yaml
// rejected (1 mistake); 3 volumes stuck; all drivers answer". trouble has the VolumeAttachments whose health is broken or
// attention. The state is the worst of all. It is never fine without a driver, or with a rejected configuration.
func Headline(c Config, drivers []Driver, trouble []Attachment, now time.Time) (state HealthState, text string) {
	state = Fine
	worst := func(s HealthState) { state = either(s.Compare(state) < 0, s, state) }
	var parts, rejected []string
	add := func(n int, one, more string) {
		if n > 0 {
			parts = append(parts, plural(n, one, more))
		}
	}
	health, volumes, servedBy := map[HealthState]int{}, map[AttachmentState]int{}, map[string]int{}
	for _, d := range drivers {
		worst(d.Health.State)
		health[d.Health.State]++
		if r := d.Health.Reasons; parts == nil && len(r) > 0 && r[0].Verdict == diagnosis.APIServerNotReached {
			parts = append(parts, r[0].Line("driver", now))
		}
	}
	for _, f := range c.Files {
		if f.Rejected != "" {
			rejected = append(rejected, filepath.Base(f.Path))
		}
	}
	if len(c.Errors) > 0 {
		worst(Attention)
		parts = append(parts, cmp.Or(strings.Join(rejected, ", "), "configuration")+" rejected ("+plural(len(c.Errors), "mistake", "mistakes")+")")
	}
	for _, a := range trouble {
		worst(a.Health.State)
		volumes[a.State]++
	}
	for _, conflict := range c.Conflicts {
		servedBy[conflict.Winner]++
	}
	worst(either(servedBy[""] > 0, Attention, Fine))
	add(servedBy[""], "driver not served", "drivers not served")
	add(health[Broken], "driver broken", "drivers broken")
	add(volumes[Stuck], "volume stuck", "volumes stuck")
	add(volumes[Failing], "volume failing", "volumes failing")
	add(volumes[Unserved], "volume unserved", "volumes unserved")
	add(volumes[Attaching]+volumes[Detaching], "volume slow", "volumes slow")
	add(volumes[Waiting], "volume waiting", "volumes waiting")
	add(volumes[Attached]+volumes[Idle], "volume needs attention", "volumes need attention")
	switch {
	case len(drivers) == 0:
		worst(Standby)
		parts = append(parts, "no driver is served")
	case health[Attention] > 0:
		add(health[Attention], "driver needs attention", "drivers need attention")
	case health[Broken] == 0:
		parts = append(parts, "all drivers answer")
	}
	return state, strings.Join(parts, "; ")
}
