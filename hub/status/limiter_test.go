package status

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// stalled is a client that reads nothing of its answer until it is let go.
type stalled struct {
	http.ResponseWriter
	reached, let chan struct{}
	once         sync.Once
}

func (s *stalled) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.reached) })
	<-s.let
	return len(p), nil
}

func TestWhoReadsSlowlyKeepsNobodyWaiting(t *testing.T) {
	h := newHub(10, 100)
	handler := newHandler(Options{Source: h, Metrics: h.metrics, Probes: h.health})
	for _, path := range []string{"/", "/attachments", "/api/v1/attachments"} {
		let := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var slow sync.WaitGroup
		for range 2 * maxRenderings {
			s := &stalled{ResponseWriter: httptest.NewRecorder(), reached: make(chan struct{}), let: let}
			slow.Go(func() {
				handler.ServeHTTP(s, httptest.NewRequestWithContext(toLoopback(t.Context()), http.MethodGet, "http://localhost"+path, nil))
			})
			select {
			case <-s.reached:
			case <-ctx.Done():
				t.Errorf("%s: nothing was sent", path)
			}
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(toLoopback(ctx), http.MethodGet, "http://localhost"+path, nil))
		if answer.Body.Len() == 0 || answer.Code != http.StatusOK {
			t.Errorf("%s: got %d, %d bytes", path, answer.Code, answer.Body.Len())
		}
		cancel()
		close(let)
		slow.Wait()
	}
}

func TestOnlySomeAreMadeAtOnce(t *testing.T) {
	s := newSite(Options{Source: newFakeHub(), Metrics: NewMetrics()})
	let, begun := make(chan struct{}), make(chan struct{})
	held := s.api(func(view, *http.Request) (any, *failure) { begun <- struct{}{}; <-let; return 1, nil })
	var busy sync.WaitGroup
	for range maxRenderings {
		busy.Go(func() { held(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)) })
		<-begun
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer := httptest.NewRecorder()
	s.api(func(view, *http.Request) (any, *failure) { t.Error("one more is made"); return 1, nil })(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if answer.Code == http.StatusOK {
		t.Error("one more was made")
	}
	close(let)
	busy.Wait()
	answer = httptest.NewRecorder()
	s.api(func(view, *http.Request) (any, *failure) { return 1, nil })(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	if answer.Body.String() != "1\n" {
		t.Error("turns are not given back")
	}
}
