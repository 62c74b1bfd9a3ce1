package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// answers are what an API server says of VolumeAttachments, by name: those that it does not have it does not
// find. nil: it is out of order.
type answers map[string]*storagev1.VolumeAttachment

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusInternalServerError, any(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: 500})
	if a != nil {
		status, body = http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404}
	}
	if va := a[path.Base(r.URL.Path)]; va != nil {
		va = va.DeepCopy()
		va.APIVersion, va.Kind = "storage.k8s.io/v1", "VolumeAttachment"
		status, body = http.StatusOK, va
	}
	text, err := json.Marshal(body)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
}

func kubeOn(t *testing.T, wire http.RoundTripper) attach.Kube {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: wire, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

// unpublishing is a session that counts unpublishes.
type unpublishing struct {
	Session
	calls int
}

func (u *unpublishing) Info() csiclient.Info {
	return csiclient.Info{Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
}

func (u *unpublishing) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	u.calls++
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// What a VolumeAttachment that is gone has left attached is known to nobody else. It must not be forgotten for one that
// has another volume or is gone too, and not be detached under one that has it.
func TestWhatIsLeftAttachedIsForgottenOnlyForWhoHasIt(t *testing.T) {
	next := func(edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
		named := func(va *storagev1.VolumeAttachment) { va.Name, va.UID = "next", "uid-2" }
		return routedAttachment(append([]func(*storagev1.VolumeAttachment){guardedAttachment, named}, edits...)...)
	}
	second := next()
	second.Name, second.UID = "second", "uid-3"
	unguarded := func(va *storagev1.VolumeAttachment) { va.Finalizers = nil }
	unattached := func(va *storagev1.VolumeAttachment) { va.Status.Attached = false }
	without := func(va *storagev1.VolumeAttachment) { delete(va.Annotations, attach.AnnotationVolumeHandle) }
	leaving := func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	another := func(va *storagev1.VolumeAttachment) { va.UID = "uid-9" }
	foreign := func(va *storagev1.VolumeAttachment) { va.Spec.Attacher = "foreign.example.com" }
	elsewhere := func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "elsewhere" }
	moved := func(va *storagev1.VolumeAttachment) { va.Annotations[attach.AnnotationNodeID] = "id-new" }
	other := guardedVolume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" })
	both := func(first, second *storagev1.VolumeAttachment) []*storagev1.VolumeAttachment {
		return []*storagev1.VolumeAttachment{first, second}
	}
	for name, c := range map[string]struct {
		cached  []*storagev1.VolumeAttachment
		server  answers
		deleted *corev1.PersistentVolume
		want    inheritance
		parted  int // calls when the driver is let go
	}{
		"nobody wants it":               {nil, answers{}, nil, noHeir, 1},
		"one has it":                    {both(next(), nil), answers{"next": next()}, nil, heirFound, 0},
		"one had it":                    {both(next(), nil), answers{}, nil, noHeir, 1},
		"one of its name came":          {both(next(), nil), answers{"next": next(another)}, nil, heirFound, 0},
		"one that the cache lacks came": {nil, answers{"va": next(another)}, nil, heirFound, 0},
		"it is the one that left it":    {nil, answers{"va": routedAttachment(guardedAttachment, unattached)}, nil, noHeir, 1},
		"that one is back":              {nil, answers{"va": routedAttachment(guardedAttachment)}, nil, heirUnclear, 0},
		"that one has it elsewhere":     {nil, answers{"va": routedAttachment(guardedAttachment, moved)}, nil, noHeir, 1},
		"one of another driver came":    {nil, answers{"va": next(another, foreign)}, nil, noHeir, 1},
		"one came by the same node ID":  {nil, answers{"va": next(another, elsewhere)}, nil, heirFound, 0},
		"one has it no more":            {both(next(), nil), answers{"next": next(leaving)}, nil, noHeir, 1},
		"one waits for it":              {both(next(unguarded, unattached), nil), answers{"next": next(unguarded, unattached)}, nil, heirWaits, 1},
		"one lost its finalizer":        {both(next(), nil), answers{"next": next(unguarded)}, nil, heirUnclear, 0},
		"one has some volume":           {both(next(without), nil), answers{"next": next(without)}, nil, heirUnclear, 0},
		"one has another, now gone":     {both(next(without), nil), answers{"next": next(without)}, other, noHeir, 1},
		"nobody tells":                  {both(next(), nil), nil, nil, heirUnclear, 0},
		"the first is gone, not second": {both(next(), second), answers{"second": second}, nil, heirFound, 0},
		"the first waits, not second":   {both(next(unguarded, unattached), second), answers{"next": next(unguarded, unattached), "second": second}, nil, heirFound, 0},
	} {
		// scene is a driver with an orphan.
		scene := func(t *testing.T) (*driver, *unpublishing, workKey) {
			d, session := routedOn(t, kubeOn(t, c.server)), &unpublishing{}
			d.connection.session.Store(&liveSession{Session: session})
			gone := d.ledger.open(routedAttachment())
			gone.progress.Adopt(routedAttachment(guardedAttachment), nil, d.finalizer)
			for _, va := range c.cached {
				if va == nil {
					continue
				}
				if err := d.cluster.Put(va); err != nil {
					t.Fatal(err)
				}
			}
			if c.deleted != nil {
				d.cluster.KeepDeleted(stored(t, c.deleted))
			}
			return d, session, d.ledger.abandon(gone)
		}
		check := func(t *testing.T, d *driver, session *unpublishing, key workKey, calls int, kept bool) {
			t.Helper()
			if session.calls != calls || (d.ledger.orphan(key) != nil) != kept {
				t.Errorf("%d calls, kept in mind %v; want %d and %v", session.calls, d.ledger.orphan(key) != nil, calls, kept)
			}
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, session, key := scene(t)
				if got, err := d.heir(t.Context(), d.ledger.orphan(key)); got != c.want || err != nil && got != heirUnclear {
					t.Errorf("inheritance %d, %v, want %d", got, err, c.want)
				}
				d.bury(t.Context(), key) // the driver is let go
				check(t, d, session, key, c.parted, c.want == heirUnclear)

				d, session, key = scene(t)
				d.queue.Open()
				d.queue.Add(key, detachLane)
				it, _ := d.queue.take(time.Now())
				d.workOnOrphan(t.Context(), it)
				calls := 0
				if c.want == noHeir {
					calls = 1
				}
				check(t, d, session, key, calls, c.want == heirWaits || c.want == heirUnclear)
			})
		})
	}
}

// The node went back to its old ID: the volume was detached there right after it had been attached again.
func TestPlaceThatIsRegainedIsNotDetachedAnyMore(t *testing.T) {
	d, session := routedOn(t, kubeOn(t, answers{})), &unpublishing{}
	d.connection.session.Store(&liveSession{Session: session})
	va := routedAttachment(guardedAttachment)
	r := d.ledger.open(va)
	r.progress.Adopt(va, nil, d.finalizer)
	place := r.progress.Target
	key := d.ledger.abandon(r)
	d.queue.Open()
	run := func(key workKey) *item {
		d.queue.Add(key, detachLane)
		it, _ := d.queue.take(time.Now())
		return it
	}
	attaching := run(workKey{attachmentWork, va.Name})
	d.queue.TakeTurn(attaching, place.VolumeHandle)
	d.workOnOrphan(t.Context(), run(key)) // waits for the turn
	d.ledger.regained(r, place)
	d.queue.Done(attaching)
	it, _ := d.queue.take(time.Now())
	d.workOnOrphan(t.Context(), it)
	if session.calls != 0 || d.ledger.orphan(key) != nil || r.abandoned != (attach.Target{}) || d.queue.Has(key) {
		t.Errorf("%d calls, orphan %v, abandoned %v, queued %v; want nothing left of it", session.calls, d.ledger.orphan(key), r.abandoned, d.queue.Has(key))
	}
}
