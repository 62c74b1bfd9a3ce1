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

func (a answers) kube(t *testing.T) attach.Kube {
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api", Transport: a, QPS: -1})
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
	other := guardedVolume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" })
	both := func(first, second *storagev1.VolumeAttachment) []*storagev1.VolumeAttachment {
		return []*storagev1.VolumeAttachment{first, second}
	}
	for name, c := range map[string]struct {
		cached []*storagev1.VolumeAttachment
		server answers
		ghost  *corev1.PersistentVolume
		want   inheritance
		parted int // calls when the driver is let go
	}{
		"nobody wants it":               {nil, answers{}, nil, noHeir, 1},
		"one has it":                    {both(next(), nil), answers{"next": next()}, nil, heirFound, 0},
		"one had it":                    {both(next(), nil), answers{}, nil, noHeir, 1},
		"one of its name came":          {both(next(), nil), answers{"next": next(another)}, nil, noHeir, 1},
		"one has it no more":            {both(next(), nil), answers{"next": next(leaving)}, nil, noHeir, 1},
		"one waits for it":              {both(next(unguarded, unattached), nil), answers{"next": next(unguarded, unattached)}, nil, heirWaits, 1},
		"one lost its finalizer":        {both(next(), nil), answers{"next": next(unguarded)}, nil, heirUnclear, 0},
		"one has some volume":           {both(next(without), nil), answers{"next": next(without)}, nil, heirUnclear, 0},
		"one has another, now gone":     {both(next(without), nil), answers{"next": next(without)}, other, noHeir, 1},
		"nobody tells":                  {both(next(), nil), nil, nil, heirUnclear, 0},
		"the first is gone, not second": {both(next(), second), answers{"second": second}, nil, heirFound, 0},
		"the first waits, not second":   {both(next(unguarded, unattached), second), answers{"next": next(unguarded, unattached), "second": second}, nil, heirFound, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := routed(t)
				d.cluster.kube = c.server.kube(t)
				session := &unpublishing{}
				d.connection.session.Store(&liveSession{Session: session})
				gone := d.ledger.open(routedAttachment())
				gone.progress.Adopt(routedAttachment(guardedAttachment), nil, d.finalizer)
				key := d.ledger.abandon(gone)
				for _, va := range c.cached {
					if va != nil {
						if err := d.cluster.attachments.GetIndexer().Add(va); err != nil {
							t.Fatal(err)
						}
					}
				}
				if c.ghost != nil {
					d.cluster.haunt(stored(t, c.ghost))
				}
				if got := d.heir(t.Context(), d.ledger.orphan(key)); got != c.want {
					t.Errorf("inheritance %d, want %d", got, c.want)
				}
				d.bury(t.Context(), key)
				if session.calls != c.parted {
					t.Errorf("%d calls when the driver is let go, want %d", session.calls, c.parted)
				}
				if kept := d.ledger.orphan(key) != nil; kept != (c.want == heirUnclear) {
					t.Errorf("kept in mind then: %v", kept)
				}
			})
		})
	}
}
