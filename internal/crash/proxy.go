package crash

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Resources are those whose watches a proxy can hold back.
var Resources = []string{"volumeattachments", "persistentvolumes", "csinodes"}

// proxy is one process' way to the API server. It records the writes to objects of cases, and to the leases of
// their drivers where the holder changes. Events are left out: nobody's decision depends on them. Requests for leases
// wait until the process may compete.
type proxy struct {
	server  *httptest.Server
	forward *httputil.ReverseProxy
	tapes   map[string]*tape // by the key of the case
	lags    map[string]*lag  // by resource
	compete chan struct{}    // closed when requests for leases may pass
}

// newProxy starts a proxy and writes a kubeconfig that leads through it. The caller must close it.
func newProxy(plane *testbed.ControlPlane, kubeconfig string, tapes map[string]*tape) (*proxy, error) {
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
	p := &proxy{tapes: tapes, lags: map[string]*lag{}, compete: make(chan struct{})}
	for _, r := range Resources {
		p.lags[r] = newLag()
	}
	silent := log.New(io.Discard, "", 0)
	p.forward = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1,
		ModifyResponse: p.delay,
		// As if the connection had been cut.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     silent,
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2, p.server.Config.ErrorLog = true, silent
	p.server.StartTLS()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	if err := plane.WriteKubeconfig(kubeconfig, p.server.Listener.Addr().String(), authority); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *proxy) close() {
	for _, l := range p.lags {
		l.end()
	}
	p.server.CloseClientConnections()
	p.server.Close()
}

// delay lets the objects of a resource pass through its lag.
func (p *proxy) delay(r *http.Response) error {
	resource, _, _ := object(r.Request.URL.Path)
	if l := p.lags[resource]; l != nil && r.Request.Method == http.MethodGet {
		r.Body = l.through(r.Body, r.Request.URL.Query().Get("watch") != "")
	}
	return nil
}

// object returns what a path names: the resource, the name of an object, which may be empty, and a subresource.
func object(path string) (resource, name, sub string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):] // without group and version
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	parts = append(parts, "", "", "")
	return parts[0], parts[1], parts[2]
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, name, sub := object(r.URL.Path)
	if resource == "leases" {
		select {
		case <-p.compete:
		case <-r.Context().Done():
			return
		}
	}
	step, t := p.step(r, resource, name, sub)
	if t == nil {
		p.forward.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	err := t.pass(r.Context(), step, false, func() {
		// The write takes effect even if the process is killed meanwhile, and is known to have.
		p.forward.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
		if answer.Code < 300 && resource == "volumeattachments" {
			t.saved(name, map[string]string{"status": publish, "": unpublish}[sub])
		}
	}, func() {
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // an error means that the client has left
	})
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// step returns the name of a write to an object of a case, and the tape that records it; nil: it is none.
func (p *proxy) step(r *http.Request, resource, name, sub string) (string, *tape) {
	if r.Method == http.MethodGet {
		return "", nil
	}
	if resource == "leases" {
		return p.leaseStep(r)
	}
	if p.lags[resource] == nil {
		return "", nil
	}
	key, own := keyOf(name)
	t := p.tapes[key]
	return strings.TrimRight(fmt.Sprintf("%s %s %s %s", strings.ToLower(r.Method), resource, own, sub), " "), t
}

// leaseStep is step for a write to a lease: only one that changes whether the process holds it is a step.
func (p *proxy) leaseStep(r *http.Request) (string, *tape) {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return "", nil
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	lease, ok := decoded.(*coordinationv1.Lease)
	if err != nil || !ok {
		return "", nil
	}
	key, isDriver := driverOfLease(lease.Name)
	t := p.tapes[key]
	if !isDriver || t == nil {
		return "", nil
	}
	held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	switch changed := t.took(held); {
	case !changed:
		return "", nil
	case held:
		return leaseTaken, t
	}
	return leaseReleased, t
}

// Steps that change the holder of the driver's lease.
const (
	leaseTaken    = "take lease"
	leaseReleased = "release lease"
)
