package tests

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// Who shows an error has its cause from the hub, and does not look for words in it: those of a
// driver may be any.
func TestTheCauseOfTheLastErrorIsShown(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.volume("other")
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal, Message: `csinode "n" not found`}}})
		v.start()
		v.create(v.attachment("v", "n"))
		v.create(v.attachment("other", "unknown-node"))
		v.pass(time.Second)
		for name, want := range map[string]diagnosis.Cause{
			"v-n":                {Verdict: diagnosis.BackendError, Code: "Internal"},
			"other-unknown-node": {Verdict: diagnosis.NodeWithoutCSI},
		} {
			if a := v.seen(name); a.LastCause != want || a.LastError == "" {
				t.Errorf("%s: the cause of %q is %+v, want %+v", name, a.LastError, a.LastCause, want)
			}
		}
		failures := v.hub.Drivers()[0].Failures
		if len(failures) == 0 || failures[0].Cause.Verdict == "" {
			t.Errorf("failures without a cause: %+v", failures)
		}
		v.turn(fakecsi.Knobs{ClearFaults: true})
	})
}
