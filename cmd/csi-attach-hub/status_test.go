package main

import (
	"context"
	"encoding/json"
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
	for _, output := range []string{"table", "json"} {
		t.Run(output, func(t *testing.T) {
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
			var problems strings.Builder // apart: whoever reads the answers may be a program
			out := &watcher{stop: cancel, enough: func(seen string) bool { return strings.Contains(seen, "d.example.com") }}
			if err := runStatus(ctx, statusFlags{clientFlags: clientFlags{server: server.URL, output: output}, watch: true, color: "auto"}, out, &problems); err != nil {
				t.Errorf("the watch ended with %v, want no error", err)
			}
			if told := problems.String(); !strings.Contains(told, "no hub has answered: ") || !strings.Contains(told, "503") {
				t.Errorf("the watch does not say that the hub was away:\n%s", told)
			}
			if seen := out.String(); strings.Contains(seen, "503") || output == "json" && !json.Valid([]byte(seen)) {
				t.Errorf("the watch shows something else than the answers:\n%s", seen)
			}
		})
	}
}
