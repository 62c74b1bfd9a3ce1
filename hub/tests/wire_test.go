package tests

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// wire is all that a hub says to the API server and to its drivers, in the order in
// which it ends. It can meddle with requests and hold back what the watches tell.
type wire struct {
	mu      sync.Mutex
	said    []string
	calls   []map[string]string // secrets of each publish
	opened  []hubdriver.Session
	between func(*http.Request, func() (*http.Response, error)) (*http.Response, error)
	thawed  chan struct{} // closed: watches flow
}

// tap lays a wire between the hub, which is started later, and all others.
func (w *world) tap() *wire {
	w.t.Helper()
	x := &wire{thawed: make(chan struct{})}
	close(x.thawed)
	config := w.plane.RESTConfig()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return tapped{x, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.options.Kube = client
	w.options.Connect = func(ctx context.Context, d registry.Driver) (hubdriver.Session, error) {
		s, err := csiclient.Connect(ctx, d, nil)
		if err != nil {
			return nil, err
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.opened = append(x.opened, s)
		return tappedSession{s, x}, nil
	}
	w.t.Cleanup(x.thaw)
	return x
}

// note adds to what was said.
func (x *wire) note(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.said = append(x.said, what)
}

// heard returns what was said since it was last asked.
func (x *wire) heard() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	said := x.said
	x.said = nil
	return said
}

// secrets returns those that went with each publish.
func (x *wire) secrets() []map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.calls)
}

// meddle has f answer the hub's writes. Its second argument passes the request on.
func (x *wire) meddle(f func(*http.Request, func() (*http.Response, error)) (*http.Response, error)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.between = f
}

// freeze holds back all that watches tell from now on, until thaw.
func (x *wire) freeze() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.thawed = make(chan struct{})
}

func (x *wire) thaw() {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-x.thawed:
	default:
		close(x.thawed)
	}
}

func (x *wire) flow() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.thawed
}

type tapped struct {
	wire *wire
	next http.RoundTripper
}

func (t tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	pass := func() (*http.Response, error) { return t.next.RoundTrip(r) }
	if r.Method == http.MethodGet {
		response, err := pass()
		if err == nil && r.URL.Query().Get("watch") != "" {
			response.Body = &heldBody{ReadCloser: response.Body, wire: t.wire, closed: make(chan struct{})}
		}
		return response, err
	}
	t.wire.mu.Lock()
	between := t.wire.between
	t.wire.mu.Unlock()
	var response *http.Response
	var err error
	if between != nil {
		response, err = between(r, pass)
	} else {
		response, err = pass()
	}
	t.wire.note(r.Method + " " + objectOf(r))
	return response, err
}

// objectOf returns resource, name and subresource of a request for one object.
func objectOf(r *http.Request) string {
	parts := strings.Split(r.URL.Path, "/")
	for i, part := range parts {
		if part == "v1" && i+1 < len(parts) {
			return strings.Join(parts[i+1:], "/")
		}
	}
	return r.URL.Path
}

// heldBody is the answer to a watch, which can be held back.
type heldBody struct {
	io.ReadCloser
	wire   *wire
	once   sync.Once
	closed chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.wire.flow():
	case <-b.closed:
	}
	return n, err
}

func (b *heldBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// tappedSession notes the calls to a driver.
type tappedSession struct {
	hubdriver.Session
	wire *wire
}

func (s tappedSession) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s.wire.mu.Lock()
	s.wire.calls = append(s.wire.calls, req.Secrets)
	s.wire.mu.Unlock()
	response, err := s.Session.ControllerPublishVolume(ctx, req)
	s.wire.note("publish " + req.VolumeId)
	return response, err
}

func (s tappedSession) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	response, err := s.Session.ControllerUnpublishVolume(ctx, req)
	s.wire.note("unpublish " + req.VolumeId)
	return response, err
}
