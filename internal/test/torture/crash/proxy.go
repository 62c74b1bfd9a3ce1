package crash

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// Resources are those whose watches a proxy can hold back.
var Resources = []string{"volumeattachments", "persistentvolumes", "csinodes"}

// proxy is one process' way to the API server. It records the writes to objects of cases, and to the leases of
// their drivers where the holder changes. Events are left out: nobody's decision depends on them. Requests for leases
// wait until the process may compete.
type proxy struct {
	*testbed.APIProxy
	tapes   map[string]*tape // by the key of the case
	compete chan struct{}    // closed when requests for leases may pass
}

// newProxy starts a proxy and writes a kubeconfig that leads through it. The caller must close it.
func newProxy(plane *testbed.ControlPlane, kubeconfig string, tapes map[string]*tape) (*proxy, error) {
	p := &proxy{tapes: tapes, compete: make(chan struct{})}
	var err error
	p.APIProxy, err = testbed.NewAPIProxy(plane, kubeconfig, func(direct http.RoundTripper) http.RoundTripper { return direct }, p)
	return p, err
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, name, sub := testbed.APIObject(r.URL.Path)
	if resource == "leases" {
		select {
		case <-p.compete:
		case <-r.Context().Done():
			return
		}
	}
	step, t := p.step(r, resource, name, sub)
	if t == nil {
		p.Forward.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	err := t.pass(r.Context(), step, false, func() {
		// The write takes effect even if the process is killed meanwhile, and is known to have.
		p.Forward.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
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
	if p.Lags[resource] == nil {
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
