package hub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// memoryAPI is as much of an API server as a hub needs: GET, LIST, WATCH and JSON patches,
// without a network, so that it works in virtual time too. It counts requests.
type memoryAPI struct {
	mu       sync.Mutex
	version  int
	objects  map[string]map[string]any // by resource/name
	watches  map[*memoryWatch]string   // resource
	requests map[string]int            // by verb and resource/name, or resource
}

// memoryKinds are the kinds that there are, by resource.
var memoryKinds = map[string]metav1.TypeMeta{
	"volumeattachments": {APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttachment"},
	"csinodes":          {APIVersion: "storage.k8s.io/v1", Kind: "CSINode"},
	"csidrivers":        {APIVersion: "storage.k8s.io/v1", Kind: "CSIDriver"},
	"persistentvolumes": {APIVersion: "v1", Kind: "PersistentVolume"},
	"secrets":           {APIVersion: "v1", Kind: "Secret"},
}

func newMemoryAPI() *memoryAPI {
	return &memoryAPI{objects: map[string]map[string]any{}, watches: map[*memoryWatch]string{}, requests: map[string]int{}}
}

// client returns a client of the API.
func (m *memoryAPI) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://memory", Transport: m, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// create adds objects.
func (m *memoryAPI) create(t *testing.T, resource string, objects ...metav1.Object) {
	t.Helper()
	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		fields["apiVersion"], fields["kind"] = memoryKinds[resource].APIVersion, memoryKinds[resource].Kind
		metadata := fields["metadata"].(map[string]any)
		metadata["uid"] = "uid-of-" + object.GetName()
		m.mu.Lock()
		m.store(resource, object.GetName(), fields, "ADDED")
		m.mu.Unlock()
	}
}

// field returns a field of an object, nil if there is none.
func (m *memoryAPI) field(resource, name string, path ...string) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	fields := m.objects[resource+"/"+name]
	if fields == nil {
		return nil
	}
	var value any = fields
	for _, key := range path {
		fields, _ := value.(map[string]any)
		value = fields[key]
	}
	return value
}

// count returns how many requests there were, of "GET secrets/a" say.
func (m *memoryAPI) count(request string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests[request]
}

// store takes a state of an object in and tells the watches. The caller holds the mutex.
func (m *memoryAPI) store(resource, name string, fields map[string]any, event string) {
	m.version++
	fields["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(m.version)
	m.objects[resource+"/"+name] = fields
	text, err := json.Marshal(map[string]any{"type": event, "object": fields})
	if err != nil {
		panic(err) // it comes from JSON
	}
	for w, watched := range m.watches {
		if watched == resource {
			w.events <- text
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (m *memoryAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, isStatus := strings.CutSuffix(r.URL.Path, "/status")
	if resource := path.Base(at); memoryKinds[resource].Kind != "" {
		if r.URL.Query().Get("watch") != "" {
			m.requests["WATCH "+resource]++
			return m.watch(r, resource)
		}
		m.requests["LIST "+resource]++
		return m.list(r, resource)
	}
	resource, name := path.Base(path.Dir(at)), path.Base(at)
	m.requests[r.Method+" "+strings.TrimPrefix(r.URL.Path[strings.Index(r.URL.Path, resource):], "/")]++
	fields := m.objects[resource+"/"+name]
	if fields == nil {
		return refused(r, http.StatusNotFound, metav1.StatusReasonNotFound, name)
	}
	if r.Method == http.MethodGet {
		return answered(r, http.StatusOK, fields)
	}
	if r.Method != http.MethodPatch {
		return refused(r, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
	return m.patch(r, resource, name, fields, isStatus)
}

// patch applies a JSON patch. Writes of the status change nothing else, and the other way round.
func (m *memoryAPI) patch(r *http.Request, resource, name string, fields map[string]any, isStatus bool) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	ops, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", body, err)
	}
	was, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	is, err := ops.Apply(was)
	if err != nil {
		return refused(r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
	}
	var patched map[string]any
	if err := json.Unmarshal(is, &patched); err != nil {
		return nil, err
	}
	if isStatus {
		patched["metadata"] = fields["metadata"]
	} else {
		patched["status"] = fields["status"]
	}
	m.store(resource, name, patched, "MODIFIED")
	return answered(r, http.StatusOK, patched)
}

func (m *memoryAPI) list(r *http.Request, resource string) (*http.Response, error) {
	items := []any{}
	for key, fields := range m.objects {
		if path.Dir(key) == resource {
			items = append(items, fields)
		}
	}
	kind := memoryKinds[resource]
	return answered(r, http.StatusOK, map[string]any{"apiVersion": kind.APIVersion, "kind": kind.Kind + "List",
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(m.version)}, "items": items})
}

func (m *memoryAPI) watch(r *http.Request, resource string) (*http.Response, error) {
	if r.URL.Query().Get("sendInitialEvents") != "" { // as an older API server: clients list then
		return refused(r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents")
	}
	w := &memoryWatch{events: make(chan []byte, 1000), ended: r.Context().Done(), closed: make(chan struct{})}
	w.forget = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches, w)
	}
	m.watches[w] = resource
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: w, Request: r}, nil
}

// memoryWatch is the answer to a WATCH.
type memoryWatch struct {
	events chan []byte
	rest   []byte
	ended  <-chan struct{}
	closed chan struct{}
	once   sync.Once
	forget func()
}

// Read implements io.Reader.
func (w *memoryWatch) Read(b []byte) (int, error) {
	if len(w.rest) == 0 {
		select {
		case w.rest = <-w.events:
		case <-w.ended:
			return 0, io.EOF
		case <-w.closed:
			return 0, io.EOF
		}
	}
	n := copy(b, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (w *memoryWatch) Close() error {
	w.once.Do(func() { close(w.closed); w.forget() })
	return nil
}

func refused(r *http.Request, code int, reason metav1.StatusReason, message string) (*http.Response, error) {
	return answered(r, code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Reason: reason, Code: int32(code), Message: message})
}

func answered(r *http.Request, code int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}
