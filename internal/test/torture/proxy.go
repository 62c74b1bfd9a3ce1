package torture

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// trouble is what a proxy does to some requests.
type trouble struct {
	kind  Kind
	share float64 // of the requests that it hits

	is      func(step string) bool // of Crashes: whether it is the request, which stepOf names
	lost    bool                   // of Crashes: the request takes effect, its answer is lost
	reached func()                 // of Crashes

	over chan struct{} // closed at the end
}

// proxy is a client's way to the API server. It records requests that change a VolumeAttachment, a PersistentVolume or a
// Lease. It carries these through although the client gives them up, as an API server does: so the outcome is known. A
// hub's proxy also makes trouble.
type proxy struct {
	*testbed.APIProxy // nil: the client is no hub
	next              http.RoundTripper
	history           *history
	by                string                 // the hub; empty: the client is no hub
	process           atomic.Pointer[string] // the process of the hub

	mu              sync.Mutex // guards all below
	troubles        map[*trouble]bool
	paused, resumed time.Time // the last time that the process was
}

// newProxy starts a hub's proxy and writes a kubeconfig that leads through it. The caller must close it.
func newProxy(plane *testbed.ControlPlane, kubeconfig, by string, h *history) (*proxy, error) {
	p := &proxy{by: by, troubles: map[*trouble]bool{}, history: h}
	var err error
	p.APIProxy, err = testbed.NewAPIProxy(plane, kubeconfig, func(direct http.RoundTripper) http.RoundTripper {
		p.next = direct
		return p
	})
	return p, err
}

// begin adds a trouble until the caller calls end. While it is silent, no watch gets an event either.
func (p *proxy) begin(t trouble) (end func()) {
	var silent []*testbed.Lag
	if t.kind == APISilent {
		silent = slices.Collect(maps.Values(p.Lags))
	}
	for _, lag := range silent {
		lag.Begin()
	}
	t.over = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.troubles[&t] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.troubles, &t)
		close(t.over)
		for _, lag := range silent {
			lag.End()
		}
	}
}

// refusals are the answers of APIError and APILeases.
var refusals = []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError}

var errLost = errors.New("the answer is lost")

// RoundTrip implements http.RoundTripper.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return p.next.RoundTrip(r)
	}
	left := p.left(time.Now())
	t := p.draw(r)
	switch {
	case t.kind == APIError, t.kind == APILeases:
		return refuse(r, refusals[rand.IntN(len(refusals))]), nil
	case t.kind == APISilent:
		select {
		case <-t.over:
		case <-r.Context().Done():
		}
		return nil, errLost
	case t.kind == Crashes && !t.lost:
		t.reached()
		<-r.Context().Done()
		return nil, errLost
	}
	response, err := p.send(r, left)
	if err != nil || t.kind != APIAnswerLost && t.kind != Crashes {
		return response, err
	}
	response.Body.Close()
	if t.kind == Crashes {
		t.reached()
		<-r.Context().Done()
	}
	return nil, errLost
}

// draw chooses the trouble that a request meets.
func (p *proxy) draw(r *http.Request) trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.troubles {
		switch {
		case t.kind == Crashes:
			if t.is(stepOf(r.Method, r.URL.Path)) {
				delete(p.troubles, t)
				return *t
			}
		case t.kind == APILeases && !strings.Contains(r.URL.Path, "/leases"):
		case rand.Float64() < t.share:
			return *t
		}
	}
	return trouble{}
}

// stepOf names a request that changes an object.
func stepOf(verb, path string) string {
	resource, name, sub := testbed.APIObject(path)
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", strings.ToLower(verb), resource, name, sub))
}

// afterPause is when a process has sent what had passed its fence before a pause, at the latest.
const afterPause = 100 * time.Millisecond

// pauses notes a pause of the process, or its end.
func (p *proxy) pauses(begin bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.resumed = time.Now(); begin {
		p.paused, p.resumed = p.resumed, time.Time{}
	}
}

// left returns when a request that arrives now left the fence of its process at the earliest: nobody can keep a process from
// being paused while it sends a request.
func (p *proxy) left(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.paused.IsZero() && (p.resumed.IsZero() || now.Sub(p.resumed) < afterPause) {
		return p.paused
	}
	return now
}

// refuse returns an error of the API server.
func refuse(r *http.Request, code int) *http.Response {
	if r.Body != nil {
		r.Body.Close()
	}
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"chaos","code":%d}`, code)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r, ProtoMajor: 1, ProtoMinor: 1}
}

// wait blocks for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// writeTime bounds a write that its client has given up.
const writeTime = 10 * time.Second

// send forwards a request that left its process at that time, and records it if it is a write.
func (p *proxy) send(r *http.Request, left time.Time) (*http.Response, error) {
	w, ok := p.writeOf(r, left)
	if !ok {
		return p.next.RoundTrip(r)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), writeTime)
	defer cancel()
	out := r.Clone(ctx)
	out.Header.Del("Accept-Encoding") // the transport unzips what it has asked for itself
	if r.Body != nil {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body.Close()
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
		p.describe(&w, sent)
	}
	response, err := p.next.RoundTrip(out)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(response.Body)
		response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err == nil {
		if w.Code = response.StatusCode; w.Code < 300 {
			p.result(&w, body)
		}
	}
	w.Until = p.history.moment(time.Now())
	p.history.wrote(w)
	return response, err
}

// writeOf returns what the request line says about a write. ok is false for all other requests.
func (p *proxy) writeOf(r *http.Request, left time.Time) (w write, ok bool) {
	resource, name, sub := testbed.APIObject(r.URL.Path)
	if p.history == nil || r.Method == http.MethodGet || !slices.Contains([]string{"volumeattachments", "persistentvolumes", "leases"}, resource) {
		return w, false
	}
	w = write{By: p.by, Verb: r.Method, At: p.history.moment(left), Object: strings.TrimRight(resource+"/"+name+"/"+sub, "/")}
	if resource == "leases" {
		w.At = p.history.moment(time.Now()) // when its turn can begin at the earliest
	}
	w.place = placeOf(resource, name)
	return w, true
}

// placeOf says for what volume and node an object is.
func placeOf(resource, name string) (p place) {
	switch resource {
	case "volumeattachments":
		pod, node, _ := strings.Cut(name, ".")
		if i := strings.LastIndex(pod, "-p"); i >= 0 {
			p.Volume, p.Node = pod[:i], testbed.NodeID(node)
		}
	case "persistentvolumes":
		p.Volume = name
	}
	p.Driver = driverOf(p.Volume)
	return p
}

// leasePrefix begins the names of the drivers' leases.
const leasePrefix = "external-attacher-leader-"

// describe adds what the body of a request says.
func (p *proxy) describe(w *write, body []byte) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	lease, ok := object.(*coordinationv1.Lease)
	if err != nil || !ok {
		return
	}
	w.Object = "leases/" + lease.Name
	w.Driver, _ = strings.CutPrefix(lease.Name, leasePrefix)
	w.Lease = &leaseWrite{BasedOn: number(lease.ResourceVersion), Duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second}
	if id, process := ptr.Deref(lease.Spec.HolderIdentity, ""), p.process.Load(); id != "" && process != nil {
		w.Lease.Holder = cmp.Or(p.history.holder(id, *process), id)
	}
}

// result adds what the answer of the API server says.
func (p *proxy) result(w *write, body []byte) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	o, ok := object.(metav1.Object)
	if err != nil || !ok {
		return
	}
	w.Version = number(o.GetResourceVersion())
	if w.Lease != nil {
		return
	}
	if resource, _, _ := strings.Cut(w.Object, "/"); w.Verb == http.MethodPost {
		w.Object = resource + "/" + o.GetName()
		w.place = placeOf(resource, o.GetName())
	}
	w.UID, w.Deleting = string(o.GetUID()), o.GetDeletionTimestamp() != nil
	w.Gone = w.Deleting && len(o.GetFinalizers()) == 0
	w.Guarded = slices.Contains(o.GetFinalizers(), attach.Finalizer(w.Driver))
	if va, ok := object.(*storagev1.VolumeAttachment); ok {
		w.Attached = va.Status.Attached
		w.Node = cmp.Or(va.Annotations[attach.AnnotationNodeID], w.Node)
	}
}

func number(resourceVersion string) uint64 {
	n, _ := strconv.ParseUint(resourceVersion, 10, 64) // 0: not known
	return n
}
