package tlsproxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// health serves the health port of a proxy for the driver of a scene, and returns a function
// that asks it.
func (s *scene) health(interval, timeout time.Duration) (get func(path string) (code int, body string)) {
	s.t.Helper()
	p, err := New(s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	p.readiness.interval, p.readiness.timeout = interval, timeout
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.ServeHealth(ctx, listener) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	return func(path string) (int, string) {
		resp, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			s.t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			s.t.Error(err)
		}
		return resp.StatusCode, string(body)
	}
}

func TestProxyIsReadyWhileItsDriverIs(t *testing.T) {
	s := newScene(t, nil)
	get := s.health(0, 10*time.Second)
	check := func(when string, code int, text string) {
		t.Helper()
		if got, body := get("/readyz"); got != code || !strings.Contains(body, text) {
			t.Errorf("%s: got %d, %q", when, got, body)
		}
		if got, _ := get("/healthz"); got != http.StatusOK {
			t.Errorf("%s: /healthz is %d", when, got)
		}
	}
	check("at the start", http.StatusOK, "ok")
	s.turn(fakecsi.Knobs{NotReady: new(true)})
	check("not ready", http.StatusServiceUnavailable, "ready=false")
	s.turn(fakecsi.Knobs{NotReady: new(false), Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.FailedPrecondition, Message: "of its own"}}})
	check("failed precondition", http.StatusServiceUnavailable, "Probe of the driver failed: FailedPrecondition\n")
	s.turn(fakecsi.Knobs{ClearFaults: true, Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.Unimplemented}}})
	check("no Probe, which a hub needs too", http.StatusServiceUnavailable, "Unimplemented")
	s.turn(fakecsi.Knobs{ClearFaults: true})
	check("ready again", http.StatusOK, "ok")
	s.driver.Crash()
	check("driver away", http.StatusServiceUnavailable, "Unavailable")
	s.startDriver()
	check("driver back", http.StatusOK, "ok")
}

func TestDriverThatHangsIsNotReady(t *testing.T) {
	s := newScene(t, nil)
	s.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.Probe}}})
	if code, body := s.health(0, time.Millisecond)("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "DeadlineExceeded") {
		t.Errorf("got %d, %q", code, body)
	}
}

func TestManyQuestionsAreOneProbe(t *testing.T) {
	s := newScene(t, nil)
	get := s.health(time.Hour, 10*time.Second)
	var callers sync.WaitGroup
	for range 30 {
		callers.Go(func() {
			if code, _ := get("/readyz"); code != http.StatusOK {
				t.Errorf("got %d", code)
			}
		})
	}
	callers.Wait()
	if got := s.backend.Books().Methods[fakecsi.Probe].Begun; got != 1 {
		t.Errorf("%d Probes, want 1", got)
	}
}
