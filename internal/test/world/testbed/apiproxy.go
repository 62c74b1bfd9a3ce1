package testbed

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// APIProxy is a process' way to the API server: a gate, and behind it a server that forwards each request. It can hold back the
// events of watches.
type APIProxy struct {
	*Gate
	Lags   map[string]*Lag // by resource: VolumeAttachments, PersistentVolumes, CSINodes
	server *httptest.Server
}

// NewAPIProxy starts a proxy and writes a kubeconfig that leads through it. Requests are forwarded over what wrap makes of the
// transport to the API server. The caller must close it.
func NewAPIProxy(plane *ControlPlane, kubeconfig string, wrap func(http.RoundTripper) http.RoundTripper) (*APIProxy, error) {
	direct := rest.AnonymousClientConfig(plane.RESTConfig()) // each request brings the credentials of its client
	direct.QPS = -1
	transport, err := rest.TransportFor(direct)
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	target, err := url.Parse(plane.RESTConfig().Host)
	if err != nil {
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	p := &APIProxy{Lags: map[string]*Lag{"volumeattachments": newLag(), "persistentvolumes": newLag(), "csinodes": newLag()}}
	silent := log.New(io.Discard, "", 0)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Accept-Encoding", "identity") // since Kubernetes 1.37 watches are compressed, and a Lag reads them
		},
		Transport:      wrap(transport),
		FlushInterval:  -1,
		ModifyResponse: p.delay,
		// As if the connection had been refused or cut.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     silent,
	}
	p.server = httptest.NewUnstartedServer(forward)
	p.server.EnableHTTP2, p.server.Config.ErrorLog = true, silent
	p.server.StartTLS()
	if p.Gate, err = newGate(p.server.Listener.Addr().String()); err != nil {
		p.server.Close()
		return nil, err
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	if err := plane.WriteKubeconfig(kubeconfig, p.Address(), authority); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close cuts all connections and blocks until the proxy serves nothing any more.
func (p *APIProxy) Close() {
	p.Gate.Close()
	p.server.CloseClientConnections()
	p.server.Close()
}

// APIObject returns what a path names: the resource, the name of an object, which may be empty, and a subresource.
func APIObject(path string) (resource, name, sub string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):] // without group and version
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	parts = append(parts, "", "", "")
	return parts[0], parts[1], parts[2]
}

// delay lets the objects of a resource pass through its lag.
func (p *APIProxy) delay(r *http.Response) error {
	resource, _, _ := APIObject(r.Request.URL.Path)
	if l := p.Lags[resource]; l != nil && r.Request.Method == http.MethodGet {
		r.Body = &lagging{r.Body, l, r.Request}
	}
	return nil
}

// Lag holds the events of one resource back from one process, and knows what has passed. Only watches are held back: what an
// informer lists or reads by itself is as the API server has it.
type Lag struct {
	mu     sync.Mutex // guards all below
	passed bytes.Buffer
	begins int
	open   chan struct{} // closed while events may pass
}

func newLag() *Lag {
	l := &Lag{open: make(chan struct{})}
	close(l.open)
	return l
}

// Begin holds events back until the caller calls End, and all others who have begun do too.
func (l *Lag) Begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begins++; l.begins == 1 {
		l.open = make(chan struct{})
	}
}

// End ends what Begin has begun.
func (l *Lag) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begins--; l.begins == 0 {
		close(l.open)
	}
}

// passedMost bounds what a lag remembers.
const passedMost = 16 << 20

// Has reports whether an object with that resourceVersion has passed. It looks for field 6 of ObjectMeta in
// protobuf: its tag, its length and the text.
func (l *Lag) Has(resourceVersion string) bool {
	field := append([]byte{6<<3 | 2, byte(len(resourceVersion))}, resourceVersion...)
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.passed.Bytes(), field)
}

// lagging is an answer that passes through a lag.
type lagging struct {
	io.ReadCloser
	lag     *Lag
	request *http.Request
}

func (b *lagging) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.lag.mu.Lock()
	open := b.lag.open
	b.lag.mu.Unlock()
	if b.request.URL.Query().Get("watch") != "" {
		select {
		case <-open:
		case <-b.request.Context().Done():
			return 0, b.request.Context().Err()
		}
	}
	b.lag.mu.Lock()
	defer b.lag.mu.Unlock()
	if b.lag.passed.Len() > passedMost {
		b.lag.passed.Reset()
	}
	b.lag.passed.Write(p[:n])
	return n, err
}
