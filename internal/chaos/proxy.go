package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// trouble is what a proxy does to some of the requests.
type trouble struct {
	kind  Kind
	share float64       // of the requests that it is about
	delay time.Duration // of APISlow, at most
}

// proxy is one hub's way to the API server. It passes everything on, but for what troubles do.
type proxy struct {
	listener net.Listener
	server   *http.Server
	forward  *httputil.ReverseProxy
	served   sync.WaitGroup

	mu       sync.Mutex // guards all below
	random   *rand.Rand
	troubles map[*trouble]bool
	open     chan struct{} // closed while anything arrives at all
	watches  map[*context.CancelFunc]bool
}

// newProxy starts a proxy and writes a kubeconfig that leads through it. The caller must
// close it.
func newProxy(plane *testbed.ControlPlane, kubeconfig string, seed uint64) (*proxy, error) {
	transport, err := rest.TransportFor(anonymous(plane.RESTConfig()))
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	target, err := url.Parse(plane.RESTConfig().Host)
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	config, authority, err := serverTLS()
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	p := &proxy{listener: listener, random: rand.New(rand.NewPCG(seed, 0)), troubles: map[*trouble]bool{},
		open: make(chan struct{}), watches: map[*context.CancelFunc]bool{}}
	close(p.open)
	p.forward = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: p.hold,
		// As if the connection had been refused or cut.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{Handler: p, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
	p.served.Go(func() { _ = p.server.ServeTLS(listener, "", "") }) // returns when it is closed
	if err := p.writeKubeconfig(plane, kubeconfig, authority); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// anonymous keeps a config's way to the server and leaves out who it is: requests say so
// themselves.
func anonymous(c *rest.Config) *rest.Config {
	a := rest.AnonymousClientConfig(c)
	a.QPS = -1
	return a
}

func (p *proxy) writeKubeconfig(plane *testbed.ControlPlane, path string, authority []byte) error {
	config, err := clientcmd.LoadFromFile(plane.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig of the control plane: %w", err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + p.listener.Addr().String()
		cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", authority
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", filepath.Base(path), err)
	}
	return nil
}

// close cuts all connections and blocks until nothing is served any more.
func (p *proxy) close() {
	p.unblock()
	p.dropWatches()
	p.server.Close()
	p.served.Wait()
}

// begin makes trouble until the returned function is called.
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

// block lets nothing through, in either direction, until unblock.
func (p *proxy) block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

func (p *proxy) unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

// dropWatches ends all watches there are, in the middle of what they say, and returns how many.
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
	if p.pass(r.Context()) != nil {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Query().Get("watch") == "true" {
		p.serveWatch(w, r)
		return
	}
	switch t := p.draw(r); t.kind {
	case APISlow:
		wait(r.Context(), t.delay)
		p.forward.ServeHTTP(w, r)
	case APIConflict:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
	case APIThrottle:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case APIError:
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
	case APIAnswerLost:
		p.forward.ServeHTTP(&discard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// draw chooses what a request meets.
func (p *proxy) draw(r *http.Request) trouble {
	write := r.Method != http.MethodGet
	p.mu.Lock()
	defer p.mu.Unlock()
	for t := range p.troubles {
		if !write && (t.kind == APIConflict || t.kind == APIAnswerLost) {
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

// serveWatch passes a watch on until dropWatches.
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
	p.forward.ServeHTTP(w, r.WithContext(ctx))
}

// hold lets what the API server says wait for as long as there is silence.
func (p *proxy) hold(r *http.Response) error {
	r.Body = &heldBody{ReadCloser: r.Body, proxy: p, ctx: r.Request.Context()}
	return nil
}

type heldBody struct {
	io.ReadCloser
	proxy *proxy
	ctx   context.Context // of the request; an io.Reader has no other way to know its end
}

func (h *heldBody) Read(b []byte) (int, error) {
	n, err := h.ReadCloser.Read(b)
	if passed := h.proxy.pass(h.ctx); passed != nil {
		return 0, passed
	}
	return n, err
}

// pass blocks as long as there is silence.
func (p *proxy) pass(ctx context.Context) error {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refuse answers as the API server does.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error is the client's end of the connection: it notices itself.
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"chaos","reason":%q,"code":%d}`, reason, code)
}

// discard takes an answer that is lost.
type discard struct {
	header http.Header
	body   bytes.Buffer
}

func (n *discard) Header() http.Header         { return n.header }
func (n *discard) Write(b []byte) (int, error) { return n.body.Write(b) }
func (n *discard) WriteHeader(int)             {}

// wait blocks for some time, less when ctx ends. Time itself is what faults are made of.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
