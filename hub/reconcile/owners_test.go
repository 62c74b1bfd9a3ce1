package reconcile

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

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// answers are what an API server says of objects, by name: those that it does not have it does not
// find. nil: it is out of order.
type answers map[string]runtime.Object

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := http.StatusInternalServerError, any(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: 500})
	if a != nil {
		status, body = http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404}
	}
	if o := a[path.Base(r.URL.Path)]; o != nil {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			return nil, err
		}
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
		status, body = http.StatusOK, o
	}
	text, err := json.Marshal(body)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
}

func kubeOn(t *testing.T, server http.RoundTripper) attach.Kube {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: server, QPS: -1})
	must(t, err)
	return kube
}

// routedTarget is where guardedAttachment is noted.
var routedTarget = attach.Target{VolumeHandle: "handle", NodeID: "id"}

// start returns the entry that may start now, nil for none.
func (d *routedWorker) start(t *testing.T) *queue.Item {
	t.Helper()
	d.Queue.Open()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var started *queue.Item
	d.Queue.Run(ctx, func(e *queue.Item) {
		started = e
		cancel()
	})
	return started
}

// What a VolumeAttachment that is gone has left published is known to nobody else. It must not be forgotten for one that
// has another volume or is gone too, and not be unpublished under one that has it.
func TestDanglingPublicationIsResolvedOnlyForAVolumeAttachmentThatHasTheVolumeThere(t *testing.T) {
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
	named := func(va *storagev1.VolumeAttachment) { va.Spec.Source.PersistentVolumeName = new("unknown") }
	moved := func(va *storagev1.VolumeAttachment) { va.Annotations[attach.AnnotationNodeID] = "id-new" }
	other := guardedVolume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" })
	both := func(first, second *storagev1.VolumeAttachment) []*storagev1.VolumeAttachment {
		return []*storagev1.VolumeAttachment{first, second}
	}
	for name, c := range map[string]struct {
		cached  []*storagev1.VolumeAttachment
		server  answers
		deleted *corev1.PersistentVolume
		want    volume.Ownership
	}{
		"nobody wants it":               {nil, answers{}, nil, volume.NoOwner},
		"one has it":                    {both(next(), nil), answers{"next": next()}, nil, volume.Owned},
		"one had it":                    {both(next(), nil), answers{}, nil, volume.NoOwner},
		"one of its name came":          {both(next(), nil), answers{"next": next(another)}, nil, volume.Owned},
		"one that the cache lacks came": {nil, answers{"va": next(another)}, nil, volume.Owned},
		"it is the one that left it":    {nil, answers{"va": routedAttachment(guardedAttachment, unattached)}, nil, volume.NoOwner},
		"that one is back":              {nil, answers{"va": routedAttachment(guardedAttachment)}, nil, volume.Owned},
		"that one lost its finalizer":   {nil, answers{"va": routedAttachment(guardedAttachment, unguarded)}, nil, volume.Unclear},
		"that one is being deleted":     {nil, answers{"va": routedAttachment(guardedAttachment, leaving)}, nil, volume.NoOwner},
		"that one has it elsewhere":     {nil, answers{"va": routedAttachment(guardedAttachment, moved)}, nil, volume.NoOwner},
		"one of another driver came":    {nil, answers{"va": next(another, foreign)}, nil, volume.NoOwner},
		"one came by the same node ID":  {nil, answers{"va": next(another, elsewhere)}, nil, volume.Owned},
		"one has it no more":            {both(next(), nil), answers{"next": next(leaving)}, nil, volume.NoOwner},
		"one waits for it":              {both(next(unguarded, unattached), nil), answers{"next": next(unguarded, unattached)}, nil, volume.Requested},
		"one lost its finalizer":        {both(next(), nil), answers{"next": next(unguarded)}, nil, volume.Unclear},
		"one has some volume":           {both(next(without), nil), answers{"next": next(without)}, nil, volume.Unclear},
		"one is attached to some":       {both(next(without, unattached), nil), answers{"next": next(without, unattached)}, nil, volume.Unclear},
		"one elsewhere, of that ID":     {both(next(without, elsewhere, named), nil), answers{"next": next(without, elsewhere, named)}, nil, volume.Unclear},
		"one has another, now gone":     {both(next(without), nil), answers{"next": next(without)}, other, volume.NoOwner},
		"nobody tells":                  {both(next(), nil), nil, nil, volume.Unclear},
		"the first is gone, not second": {both(next(), second), answers{"second": second}, nil, volume.Owned},
		"the first waits, not second":   {both(next(unguarded, unattached), second), answers{"next": next(unguarded, unattached), "second": second}, nil, volume.Owned},
	} {
		// scene is a driver with a dangling publication.
		scene := func(t *testing.T) (*routedWorker, *recording, volume.Dangling) {
			d, session := routedOn(t, kubeOn(t, c.server)), &recording{}
			d.connectTo(session)
			gone := routedAttachment(guardedAttachment)
			d.restore(d.Table.Open(gone), gone)
			for _, va := range c.cached {
				if va == nil {
					continue
				}
				must(t, cachetest.Put(d.Cluster, va))
			}
			if c.deleted != nil {
				d.Cluster.KeepDeleted(stored(c.deleted))
			}
			d.Table.Missing(routedAttachment().Name, routedAttachment().UID)
			u, ok := d.Table.Dangling(routedTarget)
			if !ok {
				t.Fatal("the publication of what is gone is not dangling")
			}
			return d, session, u
		}
		check := func(t *testing.T, d *routedWorker, session *recording, calls int, kept bool) {
			t.Helper()
			if _, dangling := d.Table.Dangling(routedTarget); len(session.calls) != calls || dangling != kept {
				t.Errorf("%d calls, dangling still %v; want %d and %v", len(session.calls), dangling, calls, kept)
			}
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, session, u := scene(t)
				if got, err := d.owners(t.Context(), u.FormerOwner, u.Target, false); got != c.want || err != nil && got != volume.Unclear {
					t.Errorf("ownership %d, %v, want %d", got, err, c.want)
				}
				calls, kept := 0, c.want == volume.Requested || c.want == volume.Unclear
				if c.want == volume.NoOwner {
					calls = 1
				}
				_ = d.detachDangling(t.Context(), d.newRound(), u) // the driver is let go
				check(t, d, session, calls, kept)

				d, session, _ = scene(t)
				d.workOnDangling(t.Context(), d.start(t))
				check(t, d, session, calls, kept)
			})
		})
	}
}

// One of which nobody can tell which volume it has keeps no other from being detached; an attach elsewhere leaves the
// previous target alone then, for later.
func TestVolumeAttachmentOfAnUnknownVolumeIsAskedForOnlyWhereSomethingIsAttachedElsewhere(t *testing.T) {
	unknown := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) {
		va.Name, va.UID = "next", "uid-2"
		delete(va.Annotations, attach.AnnotationVolumeHandle)
	})
	for op, want := range map[attach.Operation]volume.Ownership{attach.Attaching: volume.Unclear, attach.Detaching: volume.NoOwner} {
		t.Run(op.String(), func(t *testing.T) {
			d := routedOn(t, kubeOn(t, answers{"next": unknown}))
			must(t, cachetest.Put(d.Cluster, unknown.DeepCopy()))
			attachment := volume.IdentityOf(routedAttachment())
			if got, err := d.owners(t.Context(), attachment, routedTarget, op == attach.Detaching); got != want || err != nil {
				t.Errorf("ownership %d, %v, want %d", got, err, want)
			}
		})
	}
}
