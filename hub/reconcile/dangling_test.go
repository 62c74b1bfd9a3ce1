package reconcile

import (
	"net/http"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// Two listings ended it while the driver was called: the worker panicked, and the driver was started anew.
func TestDanglingPublicationThatAListingEndsDuringItsCallIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, session := routedOn(t, kubeOn(t, answers{})), &recording{}
		d.connectTo(session)
		list := func() {}
		session.answer = func(string) error {
			list()
			return status.Error(codes.Internal, "no")
		}
		d.Table.Gone(volume.IdentityOf(routedAttachment()), &attach.Record{Target: routedTarget}, false)
		d.Work(t.Context(), d.start(t))
		time.Sleep(time.Hour)
		e := d.start(t)
		list = func() {
			for range 2 {
				d.Table.ResolveDanglingNotInList(func(attach.Target) (listed, there bool) { return true, false }, time.Now(), d.Settings().Timeout)
			}
		}
		d.Work(t.Context(), e)
		if _, dangling := d.Table.Dangling(routedTarget); dangling || d.Queue.Has(e.Key) || len(session.calls) != 2 {
			t.Errorf("dangling %v, entry %v, calls %v; want nothing left after two calls", dangling, d.Queue.Has(e.Key), session.calls)
		}
	})
}

// afterRead calls a function when an object was read.
type afterRead struct {
	http.RoundTripper
	call func(name string)
}

func (a afterRead) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(r)
	a.call(path.Base(r.URL.Path))
	return response, err
}

// The watch told of its end before the worker had the answer: the volume stayed attached, and nobody knew of it.
func TestDanglingPublicationIsDetachedIfItsOwnerVanishesWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.Name, va.UID = "owner", "uid-2" })
		api, session := answers{"owner": owner}, &recording{}
		var d *routedWorker
		d = routedOn(t, kubeOn(t, afterRead{api, func(name string) {
			if api[name] == owner {
				delete(api, name)
				d.attachmentGone(owner)
			}
		}}))
		d.connectTo(session)
		must(t, cachetest.Put(d.Cluster, owner))
		d.Table.Gone(volume.IdentityOf(routedAttachment()), &attach.Record{Target: routedTarget}, false)
		for e := d.start(t); e != nil; e = d.start(t) {
			d.Work(t.Context(), e)
		}
		if _, dangling := d.Table.Dangling(routedTarget); len(session.calls) != 1 || dangling {
			t.Errorf("%d calls, dangling %v; want it detached", len(session.calls), dangling)
		}
	})
}

// The watch can tell of the owner's end before the answer of its read is used.
func TestWhatAnOwnerLeavesWhileTheDriverDrainsIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.Name, va.UID = "owner", "uid-2" })
		api, session := answers{"owner": owner}, &recording{}
		var d *routedWorker
		d = routedOn(t, kubeOn(t, afterRead{api, func(name string) {
			if api[name] == owner {
				delete(api, name)
				d.Table.ObserveDeletion(volume.IdentityOf(owner), attach.Record{Target: routedTarget}, time.Now())
			}
		}}))
		d.connectTo(session)
		must(t, cachetest.Put(d.Cluster, owner))
		d.Table.Gone(volume.IdentityOf(routedAttachment()), &attach.Record{Target: routedTarget}, false)
		d.Table.Close()
		u, _ := d.Table.Dangling(routedTarget)
		_ = d.detachDangling(t.Context(), d.newRound(), u)
		if _, dangling := d.Table.Dangling(routedTarget); len(session.calls) == 0 && !dangling {
			t.Error("published and forgotten")
		}
	})
}
