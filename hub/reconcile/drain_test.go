package reconcile

import (
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// The watch can tell of the owner's end before the answer of its read is used.
func TestWhatAnOwnerLeavesWhileTheDriverDrainsIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.Name, va.UID = "owner", "uid-2" })
		api, session := answers{"owner": owner}, &unpublishing{}
		var d *routedWorker
		d = routedOn(t, kubeOn(t, afterRead{api, func(name string) {
			if api[name] == owner {
				delete(api, name)
				d.Table.ObserveDeletion(volume.IdentityOf(owner), attach.Record{Target: routedTarget}, time.Now())
			}
		}}))
		d.connectTo(session)
		if err := cachetest.Put(d.Cluster, owner); err != nil {
			t.Fatal(err)
		}
		d.Table.Gone(volume.IdentityOf(routedAttachment()), &attach.Record{Target: routedTarget}, false)
		d.Table.Close()
		u, _ := d.Table.Dangling(routedTarget)
		_ = d.detachDangling(t.Context(), d.newRound(), u)
		if _, dangling := d.Table.Dangling(routedTarget); session.calls == 0 && !dangling {
			t.Error("published and forgotten")
		}
	})
}
