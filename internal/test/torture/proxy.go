package torture

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// trouble is what a proxy does to some requests.
type trouble struct {
	kind  Kind
	share float64       // of the matching requests that it hits
	delay time.Duration // of APISlow, at most
}

// proxy is one hub's way to the API server: a gate, and behind it a server that forwards each
// request, unless a trouble hits it.
type proxy struct {
	*testbed.APIProxy
	recorder *recorder

	mu       sync.Mutex // guards all below
	random   *rand.Rand
	troubles map[*trouble]bool
	watches  map[*context.CancelFunc]bool
	silence  hold // nothing passes
	pause    hold // of the process
}

// newProxy starts a proxy and writes a kubeconfig that leads through it. The caller must
// close it.
func newProxy(plane *testbed.ControlPlane, kubeconfig string, seed uint64, recorder *recorder) (*proxy, error) {
	p := &proxy{random: rand.New(rand.NewPCG(seed, 0)), troubles: map[*trouble]bool{}, watches: map[*context.CancelFunc]bool{}, recorder: recorder}
	var err error
	p.APIProxy, err = testbed.NewAPIProxy(plane, kubeconfig, func(direct http.RoundTripper) http.RoundTripper {
		recorder.next = direct
		return recorder
	}, p)
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

// dropWatches cuts all watches and returns how many there were.
func (p *proxy) dropWatches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for cancel := range p.watches {
		(*cancel)()
	}
	return len(p.watches)
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "true" {
		p.serveWatch(w, r)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), leftKey{}, p.left(time.Now())))
	switch t := p.draw(r); t.kind {
	case APISlow:
		wait(r.Context(), t.delay)
		p.Forward.ServeHTTP(w, r)
	case APIConflict:
		p.recorder.refused(r)
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
	case APIThrottle:
		p.recorder.refused(r)
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case APIError, APILeases:
		p.recorder.refused(r)
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case APIAnswerLost:
		p.Forward.ServeHTTP(&discard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		p.Forward.ServeHTTP(w, r)
	}
}

// draw chooses the trouble that a request meets.
func (p *proxy) draw(r *http.Request) trouble {
	write := r.Method != http.MethodGet
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.troubles {
		if !write && (t.kind == APIConflict || t.kind == APIAnswerLost) || t.kind == APILeases && !strings.Contains(r.URL.Path, "/leases") {
			continue
		}
		if p.random.Float64() < t.share {
			met := *t
			met.delay = time.Duration(p.random.Float64() * float64(t.delay))
			return met
		}
	}
	return trouble{}
}

// serveWatch forwards a watch until it ends or dropWatches cuts it.
func (p *proxy) serveWatch(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	p.mu.Lock()
	p.watches[&cancel] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watches, &cancel)
	}()
	if path.Base(r.URL.Path) == "volumeattachments" {
		p.recorder.history.watched(p.recorder.by)
	}
	p.Forward.ServeHTTP(w, r.WithContext(ctx))
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

// refuse answers with an error of the API server.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client has hung up.
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"chaos","reason":%q,"code":%d}`, reason, code)
}

// discard is the ResponseWriter of an answer that is lost.
type discard struct {
	header http.Header
	body   bytes.Buffer
}

func (n *discard) Header() http.Header         { return n.header }
func (n *discard) Write(b []byte) (int, error) { return n.body.Write(b) }
func (n *discard) WriteHeader(int)             {}

// wait blocks for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
