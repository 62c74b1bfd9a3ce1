package hub

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWhereADriverWasLearnedIsNoReasonToTouchIt(t *testing.T) {
	d := newDesired(registry.Driver{Name: "d", Source: "drivers.yaml:3"})
	_, changed := d.get()
	if d.set(registry.Driver{Name: "d", Source: "drivers.yaml:9"}) {
		t.Error("a line that has moved is taken for a change")
	}
	select {
	case <-changed:
		t.Error("a line that has moved wakes the driver")
	default:
	}
	if value, _ := d.get(); value.Source != "drivers.yaml:9" {
		t.Errorf("source %s, want the new one", value.Source)
	}
	if d.set(registry.Driver{Name: "d", Source: "drivers.yaml:9", WindDown: true}) || !d.windsDown() {
		t.Error("that a driver winds down is taken for a change, or forgotten")
	}
	if !d.set(registry.Driver{Name: "d", Settings: registry.Settings{Timeout: time.Second}}) {
		t.Error("a timeout that has changed is not taken for a change")
	}
	<-changed
}
