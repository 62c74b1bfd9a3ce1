package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Two listings ended it while the driver was called: the worker panicked, and the driver was started anew.
func TestUnownedPublicationThatAListingEndsDuringItsCallIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, session := routedOn(t, kubeOn(t, answers{})), &recording{}
		d.connection.session.Store(&liveSession{Session: session})
		list := func() {}
		session.answer = func(string) error {
			list()
			return status.Error(codes.Internal, "no")
		}
		d.table.Gone(volume.IdentityOf(routedAttachment()), &attach.Record{Target: routedTarget})
		d.work(t.Context(), d.start(t))
		time.Sleep(time.Hour)
		e := d.start(t)
		list = func() {
			for range 2 {
				d.table.Listed(func(attach.Target) (listed, there bool) { return true, false }, time.Now(), d.desired.settings().Timeout)
			}
		}
		d.work(t.Context(), e)
		if _, unowned := d.table.Unowned(routedTarget); unowned || d.table.Has(e.Key) || len(session.calls) != 2 {
			t.Errorf("unowned %v, entry %v, calls %v; want nothing left after two calls", unowned, d.table.Has(e.Key), session.calls)
		}
	})
}
