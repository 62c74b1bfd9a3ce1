package hub

import (
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestRoleFollowsModeAndAutomaticPause(t *testing.T) {
	for _, test := range []struct {
		name      string
		mode      registry.Mode
		autoPause string
		want      role
	}{
		{name: "active", mode: registry.ModeActive, want: role{mode: registry.ModeActive}},
		{name: "paused", mode: registry.ModePaused, want: role{mode: registry.ModePaused, pausedBy: "paused by `mode: paused` in drivers.yaml"}},
		{name: "paused by the hub", mode: registry.ModeActive, autoPause: "another attacher", want: role{mode: registry.ModePaused, pausedBy: "another attacher"}},
		{name: "observing does no harm while paused by the hub", mode: registry.ModeObserve, autoPause: "another attacher", want: role{mode: registry.ModeObserve}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := roleFor(test.mode, test.autoPause); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
