package chaos

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
	shut     time.Time // since when nothing passes, now or last
	opened   time.Time // when that ended
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
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut, p.opened = time.Now(), time.Time{}
	p.Gate.Shut()
}

// Open lets everything through again.
func (p *proxy) Open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = time.Now()
	p.Gate.Open()
}

// afterSilence is for how long after a silence requests may arrive that were sent during it.
const afterSilence = time.Second

// left returns when a request that arrives now left its process at the earliest: nobody can keep a network from
// holding a request back.
func (p *proxy) left(now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.shut.IsZero() && (p.opened.IsZero() || now.Sub(p.opened) < afterSilence) {
		return p.shut
	}
	return now
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
