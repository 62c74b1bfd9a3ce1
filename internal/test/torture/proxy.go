package torture

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
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
	share float64       // of the matching requests that it hits
	delay time.Duration // of APISlow, at most

	is      func(step string) bool // of Crashes: whether it is the request, which stepOf names
	phase   phase
	reached func()
}

// refusals are the answers of some troubles.
var refusals = map[Kind]struct {
	code   int
	reason metav1.StatusReason
}{
	APIConflict: {http.StatusConflict, metav1.StatusReasonConflict},
	APIThrottle: {http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests},
	APIError:    {http.StatusInternalServerError, metav1.StatusReasonInternalError},
	APILeases:   {http.StatusInternalServerError, metav1.StatusReasonInternalError},
}

// proxy is a client's way to the API server. It records requests that change a VolumeAttachment, a PersistentVolume or a
// Lease. It carries these through although the client gives them up, as an API server does: so the outcome is known. A
// hub's proxy also makes trouble, and has a gate.
type proxy struct {
	*testbed.APIProxy // nil: the client is no hub
	next              http.RoundTripper
	history           *history
	by                string                 // the hub; empty: the client is no hub
	process           atomic.Pointer[string] // the process of the hub

	mu       sync.Mutex // guards all below
	random   *rand.Rand
	troubles map[*trouble]bool
	watches  []context.CancelFunc
	silence  hold // nothing passes
	pause    hold // of the process
}

// newProxy starts a hub's proxy and writes a kubeconfig that leads through it. The caller must close it.
func newProxy(plane *testbed.ControlPlane, kubeconfig, by string, seed uint64, h *history) (*proxy, error) {
	p := &proxy{by: by, random: rand.New(rand.NewPCG(seed, 0)), troubles: map[*trouble]bool{}, history: h}
	var err error
	p.APIProxy, err = testbed.NewAPIProxy(plane, kubeconfig, func(direct http.RoundTripper) http.RoundTripper {
		p.next = direct
		return p
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.Forward.ServeHTTP(w, r) }))
	return p, err
}

// begin adds a trouble until the caller calls end.
func (p *proxy) begin(t trouble) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.troubles[&t] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.troubles, &t)
	}
}

// dropWatches cuts all watches, and reports whether there was one.
func (p *proxy) dropWatches() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	watches := p.watches
	for _, cancel := range watches {
		cancel()
	}
	p.watches = nil
	return len(watches) > 0
}

var errLost = errors.New("the answer is lost")

// RoundTrip implements http.RoundTripper.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return p.watch(r)
	}
	left := p.left(time.Now())
	t := p.draw(r)
	if no, ok := refusals[t.kind]; ok {
		return refuse(r, no.code, no.reason), nil
	}
	if t.kind == APISlow {
		wait(r.Context(), t.delay)
	}
	if t.kind == Crashes && t.phase == before {
		t.reached()
		<-r.Context().Done()
		return nil, r.Context().Err()
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
		switch t.kind {
		case Crashes:
			if t.is(stepOf(r.Method, r.URL.Path)) {
				delete(p.troubles, t)
				return *t
			}
			continue
		case APIConflict, APIAnswerLost:
			if r.Method == http.MethodGet {
				continue
			}
		case APILeases:
			if !strings.Contains(r.URL.Path, "/leases") {
				continue
			}
		}
		if p.random.Float64() < t.share {
			met := *t
			met.delay = time.Duration(p.random.Float64() * float64(t.delay))
			return met
		}
	}
	return trouble{}
}

// stepOf names a request that changes an object.
func stepOf(verb, path string) string {
	resource, name, sub := testbed.APIObject(path)
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", strings.ToLower(verb), resource, name, sub))
}

// watch forwards a watch until it ends or dropWatches cuts it.
func (p *proxy) watch(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	p.mu.Lock()
	p.watches = append(p.watches, cancel)
	p.mu.Unlock()
	if resource, _, _ := testbed.APIObject(r.URL.Path); resource == "volumeattachments" && p.history != nil && p.by != "" {
		p.history.watched(p.by)
	}
	return p.next.RoundTrip(r.WithContext(ctx))
}

// Shut lets nothing through from now on.
func (p *proxy) Shut() {
	p.holds(&p.silence, true)
	p.Gate.Shut()
}

// Open lets everything through again.
func (p *proxy) Open() {
	p.holds(&p.silence, false)
	p.Gate.Open()
}

// hold is a time in which requests of a hub may be held back, the last of its kind. until is zero while it lasts.
type hold struct{ from, until time.Time }

// A request that was held back arrives so long after the end of the hold at most. A process that goes on sends at once what
// had passed its fence.
const (
	afterSilence = time.Second
	afterPause   = 100 * time.Millisecond
)

// holds begins or ends a hold.
func (p *proxy) holds(h *hold, begin bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if begin {
		*h = hold{from: time.Now()}
	} else {
		h.until = time.Now()
	}
}

// left returns when a request that arrives now left the fence of its process at the earliest: nobody can keep a network from
// holding a request back, or a process from being paused while it sends one.
func (p *proxy) left(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := now
	for _, h := range []struct {
		hold
		after time.Duration
	}{{p.silence, afterSilence}, {p.pause, afterPause}} {
		if !h.from.IsZero() && (h.until.IsZero() || now.Sub(h.until) < h.after) && h.from.Before(left) {
			left = h.from
		}
	}
	return left
}

// refuse returns an error of the API server.
func refuse(r *http.Request, code int, reason metav1.StatusReason) *http.Response {
	if r.Body != nil {
		r.Body.Close()
	}
	text := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"chaos","reason":%q,"code":%d}`, reason, code)
	header := http.Header{"Content-Type": {"application/json"}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(text)), Request: r, ProtoMajor: 1, ProtoMinor: 1}
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
	sent, err := readBody(r.Body)
	if err != nil {
		return nil, err
	}
	out := r.Clone(ctx)
	out.Header.Del("Accept-Encoding") // the transport unzips what it has asked for itself
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
	p.describe(&w, sent)
	response, err := p.next.RoundTrip(out)
	var body []byte
	if err == nil {
		if body, err = readBody(response.Body); err == nil {
			w.Code = response.StatusCode
			response.Body = io.NopCloser(bytes.NewReader(body))
			if w.Code < 300 {
				p.result(&w, body)
			}
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
	if err != nil {
		return
	}
	state := func(resource string, o metav1.Object) {
		if w.Verb == http.MethodPost {
			w.Object = resource + "/" + o.GetName()
		}
		w.place = placeOf(resource, o.GetName())
		w.Version, w.UID, w.Deleting = number(o.GetResourceVersion()), string(o.GetUID()), o.GetDeletionTimestamp() != nil
		w.Gone = w.Deleting && len(o.GetFinalizers()) == 0
		w.Guarded = slices.Contains(o.GetFinalizers(), attach.Finalizer(w.Driver))
	}
	switch o := object.(type) {
	case *storagev1.VolumeAttachment:
		state("volumeattachments", o)
		w.Attached = o.Status.Attached
		w.Node = cmp.Or(o.Annotations[attach.AnnotationNodeID], w.Node)
	case *corev1.PersistentVolume:
		state("persistentvolumes", o)
	case *coordinationv1.Lease:
		w.Version = number(o.ResourceVersion)
	}
}

func number(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readBody reads and closes a body; nil is empty.
func readBody(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read body: %w", err)
	}
	return data, nil
}
