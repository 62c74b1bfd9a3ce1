package hub

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// A lease that is late with its renewal was told to whoever waits for the volume, ten times a second.
func TestOnlyErrorsOfTheVolumeAreForItsStatus(t *testing.T) {
	d := routed(t)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"the driver's answer":               {&attach.CallError{Err: status.Error(codes.Internal, "no")}, true},
		"call that the lease did not cover": {&attach.CallError{Err: lease.ErrFenced}, false},
		"the object has changed":            {attach.ErrStale, false},
		"the driver has gone":               {&attach.CallError{Err: errors.Join(errDisconnected, status.Error(codes.Unavailable, "gone"))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := d.isOfTheVolume(&queue.Item{}, c.err); got != c.want {
				t.Errorf("for the status: %v, want %v", got, c.want)
			}
		})
	}
}
