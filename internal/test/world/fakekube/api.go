package fakekube

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// API is a Kubernetes API in memory. Its methods may be called from any goroutine.
type API struct {
	mu        sync.Mutex // guards all below
	version   int64
	objects   map[key]object
	histories map[string]*history // by resource
	intercept func(Request) int
	requests  map[Request]int
}

// Request is one kind of request of a client.
type Request struct {
	Verb     string // get, list, watch, create, update, patch, delete
	Resource string // persistentvolumes; with its subresource: volumeattachments/status
	Name     string // of the object; "" for list, watch and create
}

// key names an object.
type key struct{ resource, namespace, name string }

// object is an object as JSON would have it.
type object map[string]any

// New makes an API without objects.
func New() *API {
	return &API{objects: map[key]object{}, histories: map[string]*history{}, requests: map[Request]int{}}
}

// Client returns a clientset on the API, without a rate limit.
func (a *API) Client() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{
		Host: "http://fakekube", Transport: a, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
	})
}

// Intercept calls f for each request from now on, before the request has an effect: f returns an
// HTTP status of 400 or above as the answer, or 0 to let the request pass. A nil f lets all
// requests pass. f may call the API; it is called for these requests too.
func (a *API) Intercept(f func(Request) int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.intercept = f
}

// HoldWatches holds the events of a resource back from its watches until ReleaseWatches.
func (a *API) HoldWatches(resource string) { a.hold(resource, true) }

// ReleaseWatches sends the held events of a resource to its watches.
func (a *API) ReleaseWatches(resource string) { a.hold(resource, false) }

// ForgetEvents drops the events that watches have not sent yet, and ends these watches with "too
// old": their clients must list again, as after a long outage.
func (a *API) ForgetEvents() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.histories {
		h.forgotten = len(h.events)
		h.wake()
	}
}

func (a *API) hold(resource string, held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.history(resource)
	h.held = held
	h.wake()
}

// Requests returns how many requests of each kind there were, with those that failed.
func (a *API) Requests() map[Request]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.requests)
}

// Count returns how many requests there were with a verb for a resource, of all names.
func (a *API) Count(verb, resource string) int {
	n := 0
	for r, times := range a.Requests() {
		if r.Verb == verb && r.Resource == resource {
			n += times
		}
	}
	return n
}

// next returns a resourceVersion for another change. The caller has locked mu.
func (a *API) next() int64 {
	a.version++
	return a.version
}

// RoundTrip implements http.RoundTripper.
func (a *API) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	k, sub := keyOf(r.URL.Path)
	request := Request{Verb: verbOf(r, k), Resource: strings.Join(slices.DeleteFunc([]string{k.resource, sub}, func(s string) bool { return s == "" }), "/"), Name: k.name}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	a.requests[request]++
	intercept := a.intercept
	a.mu.Unlock()
	if intercept != nil {
		if code := intercept(request); code != 0 {
			return answer(r, code, failure(code, "injected", k)), nil
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if request.Verb == "watch" {
		return &http.Response{StatusCode: http.StatusOK, Header: header(), Body: a.watch(r, k.resource), Request: r}, nil
	}
	code, value := a.serve(request.Verb, k, sub, body)
	return answer(r, code, value), nil
}

// keyOf reads the path of a request: /api/v1/... or /apis/GROUP/v1/...
func keyOf(path string) (k key, sub string) {
	_, rest, _ := strings.Cut(path, "/v1/")
	parts := append(strings.Split(rest, "/"), "", "", "")
	if parts[0] == "namespaces" && parts[2] != "" {
		k.namespace = parts[1]
		parts = append(parts[2:], "", "")
	}
	k.resource, k.name = parts[0], parts[1]
	return k, parts[2]
}

func verbOf(r *http.Request, k key) string {
	switch {
	case r.Method == http.MethodGet && k.name != "":
		return "get"
	case r.Method == http.MethodGet && (r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"):
		return "watch"
	case r.Method == http.MethodGet:
		return "list"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	}
	return strings.ToLower(r.Method)
}

func header() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func answer(r *http.Request, code int, value any) *http.Response {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was made of JSON
	}
	return &http.Response{StatusCode: code, Header: header(), Body: io.NopCloser(bytes.NewReader(text)), Request: r}
}

// failure returns the Status of an HTTP status.
func failure(code int, message string, k key) metav1.Status {
	reasons := map[int]metav1.StatusReason{
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: reasons[code], Code: int32(code), Message: k.resource + " \"" + k.name + "\": " + message,
		Details: &metav1.StatusDetails{Name: k.name, Kind: k.resource},
	}
}
