package fakekube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// event is one change, as watches send it.
type event struct {
	version int64
	line    []byte // JSON
}

// history is what the watches of a resource send. The API's mu guards it.
type history struct {
	events    []event
	forgotten int           // index into events: no watch gets an earlier one
	held      bool          // no watch sends anything
	changed   chan struct{} // closed and replaced on each change; wakes the watches
}

// history returns the history of a resource. The caller has locked mu.
func (a *API) history(resource string) *history {
	h := a.histories[resource]
	if h == nil {
		h = &history{changed: make(chan struct{})}
		a.histories[resource] = h
	}
	return h
}

// tell adds an event.
func (h *history) tell(version int64, line []byte) {
	h.events = append(h.events, event{version, line})
	h.wake()
}

// wake lets watches look again.
func (h *history) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (a *API) tell(k key, o object, what string) {
	a.history(k.resource).tell(a.version, line(what, o))
}

func line(what string, o object) []byte {
	text, err := json.Marshal(map[string]any{"type": what, "object": o})
	if err != nil {
		panic(err)
	}
	return append(text, '\n')
}

// expired is the event for a client that has missed events.
var expired = []byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}` + "\n")

// bookmark returns an event with the resourceVersion up to which a watch has sent everything. Clients
// look at the annotation only at the end of the initial events.
func bookmark(resource string, version int64) []byte {
	return line("BOOKMARK", object{
		"kind": kinds[resource], "apiVersion": apiVersionOf(resource),
		"metadata": map[string]any{
			"resourceVersion": strconv.FormatInt(version, 10),
			"annotations":     map[string]any{"k8s.io/initial-events-end": "true"},
		},
	})
}

// Bookmark sends a bookmark to all watches, as an API server does about once a minute.
func (a *API) Bookmark() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for resource := range kinds {
		a.history(resource).tell(a.version, bookmark(resource, a.version))
	}
}

// watchBody is the answer to a watch. It ends by itself only after ForgetEvents.
type watchBody struct {
	api      *API
	ctx      context.Context // of the request
	resource string
	next     int    // in the events of the resource
	after    int64  // resourceVersion that the client knows
	rest     []byte // to send, and not read yet
	ended    bool   // after the rest
	once     sync.Once
	closed   chan struct{}
}

// watch begins a watch. The caller has locked mu.
func (a *API) watch(r *http.Request, resource string) io.ReadCloser {
	b := &watchBody{api: a, ctx: r.Context(), resource: resource, closed: make(chan struct{})}
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "true" {
		for _, k := range a.keys(resource) {
			b.rest = append(b.rest, line("ADDED", a.objects[k])...)
		}
		b.rest = append(b.rest, bookmark(resource, a.version)...)
		b.after, b.next = a.version, len(a.history(resource).events)
		return b
	}
	b.after, _ = strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	return b
}

// Read blocks until there is an event, or the watch ends.
func (b *watchBody) Read(p []byte) (int, error) {
	for {
		changed := b.fill()
		if len(b.rest) > 0 {
			n := copy(p, b.rest)
			b.rest = b.rest[n:]
			return n, nil
		}
		if b.ended {
			return 0, io.EOF
		}
		select {
		case <-changed:
		case <-b.closed:
			return 0, io.EOF
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
}

// fill takes the next events, and returns a channel that is closed when there may be more.
func (b *watchBody) fill() <-chan struct{} {
	b.api.mu.Lock()
	defer b.api.mu.Unlock()
	h := b.api.history(b.resource)
	if h.held {
		return h.changed
	}
	for ; b.next < len(h.events) && len(b.rest) == 0; b.next++ {
		e := h.events[b.next]
		if e.version <= b.after {
			continue
		}
		if b.ended = b.next < h.forgotten; b.ended {
			b.rest = expired
		} else {
			b.rest = append(b.rest, e.line...)
		}
	}
	return h.changed
}

// Close ends the watch.
func (b *watchBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}
