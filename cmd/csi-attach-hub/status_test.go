package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// watcher ends a watch when it has seen enough.
type watcher struct {
	strings.Builder
	enough func(seen string) bool
	stop   context.CancelFunc
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.Builder.Write(p)
	if w.enough(w.String()) {
		w.stop()
	}
	return n, err
}

func TestWatchGoesOnWhileAHubIsAwayUntilItIsInterrupted(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"identity": "id", "drivers": [{"name": "d.example.com", "state": "Ready"}]}`)
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &watcher{stop: cancel, enough: func(seen string) bool { return strings.Contains(seen, "d.example.com") }}
	if err := runStatus(ctx, askFlags{server: server.URL, output: "table"}, true, out); err != nil {
		t.Errorf("the watch ended with %v, want no error", err)
	}
	if seen := out.String(); !strings.Contains(seen, "no hub has answered: ") || !strings.Contains(seen, "503") {
		t.Errorf("the watch does not say that the hub was away:\n%s", seen)
	}
}
