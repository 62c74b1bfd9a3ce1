package hub

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// oddSession panics when it is asked what the driver can do.
type oddSession struct{ Session }

func (oddSession) Info() csiclient.Info { panic("odd answer") }

func TestPanicWhileADriverIsTakenUpOrLetGoEndsItsRunAlone(t *testing.T) {
	d := routed(t)
	d.connectTo(oddSession{})
	d.setUp(true, func(*driverState) {})
	err := d.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "odd answer") {
		t.Errorf("the run ended with %v, want the panic", err)
	}
}
