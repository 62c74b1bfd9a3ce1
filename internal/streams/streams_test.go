package streams

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestRequestsWaitForTheirTurnButWatchesDoNot(t *testing.T) {
	transport := Bound(roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: io.NopCloser(strings.NewReader(""))}, nil
	}))
	send := func(ctx context.Context, method, query string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1/x?"+query, strings.NewReader("x"))
		if err != nil {
			return nil, err
		}
		return transport.RoundTrip(r)
	}
	var answers []*http.Response
	for range Most {
		answer, err := send(t.Context(), http.MethodPatch, "fieldManager=watch")
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := send(ended, http.MethodPatch, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("a request more: %v, want it to end with its context", err)
	}
	if _, err := send(t.Context(), http.MethodGet, "allowWatchBookmarks=true&watch=true"); err != nil {
		t.Errorf("a watch beside them: %v", err)
	}
	for range 2 {
		if err := answers[0].Body.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := send(t.Context(), http.MethodPatch, ""); err != nil {
		t.Errorf("after an answer was read: %v", err)
	}
	if _, err := send(ended, http.MethodPatch, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("after the other answer was closed twice: %v, want no further turn", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
