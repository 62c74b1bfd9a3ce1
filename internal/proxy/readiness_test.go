package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// health is the health port of a proxy for the driver of a scene, which it probes without a pause.
type health struct {
	*scene
	address string
	client  http.Client
}

func (s *scene) health() *health {
	s.t.Helper()
	p, err := New(s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	p.probeInterval, p.healthTimeout = time.Millisecond, time.Minute
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(klog.NewContext(s.t.Context(), ktesting.NewLogger(s.log, ktesting.NewConfig())))
	ended := make(chan struct{})
	go func() { defer close(ended); p.ServeHealth(ctx, listener) }()
	s.t.Cleanup(func() { stop(); <-ended })
	return &health{s, listener.Addr().String(), http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (h *health) get(path string) (code int, body string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.ctx, http.MethodGet, "http://"+h.address+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	resp, err := h.client.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// until waits for an answer of /readyz.
func (h *health) until(code int, text string) {
	h.t.Helper()
	for {
		got, body := h.get("/readyz")
		if got == code && strings.Contains(body, text) {
			return
		}
		select {
		case <-h.ctx.Done():
			h.t.Fatalf("got %d, %q, want %d, %q", got, body, code, text)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestProxyIsReadyWhileItsDriverIs(t *testing.T) {
	s := newScene(t, nil)
	h := s.health()
	h.until(http.StatusOK, "ok")
	s.turn(fakecsi.Knobs{NotReady: new(true)})
	h.until(http.StatusServiceUnavailable, "ready=false")
	s.turn(fakecsi.Knobs{NotReady: new(false), Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.Unimplemented}}})
	h.until(http.StatusServiceUnavailable, "Unimplemented") // a hub needs Probe too
	s.turn(fakecsi.Knobs{ClearFaults: true})
	h.until(http.StatusOK, "ok")
	s.driver.Crash()
	h.until(http.StatusServiceUnavailable, "proxy cannot open unix://"+s.options.Target+": ")
	if got, _ := h.get("/healthz"); got != http.StatusOK {
		t.Errorf("/healthz is %d", got)
	}
	s.startDriver()
	h.until(http.StatusOK, "ok")
}

// Anybody may ask the health port, and others read the log.
func TestReadinessSaysNothingOfTheDriversText(t *testing.T) {
	s := newScene(t, nil)
	s.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.FailedPrecondition, Message: "password hunter2"}}})
	s.health().until(http.StatusServiceUnavailable, "the driver's Probe failed: FailedPrecondition\n")
	s.logged("the driver's Probe failed: FailedPrecondition")
	if strings.Contains(s.log.String(), "hunter2") {
		t.Errorf("the log has the driver's text: %s", s.log)
	}
}

// The kubelet waits for seconds, the hub for longer: a driver that it serves is ready.
func TestProbeThatLastsDoesNotDelayTheAnswer(t *testing.T) {
	s := newScene(t, nil)
	s.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.Probe}}})
	h := s.health()
	h.until(http.StatusServiceUnavailable, "has not ended")
	s.turn(fakecsi.Knobs{ReleaseAll: true})
	h.until(http.StatusOK, "ok")
	begun := s.backend.Books().Methods[fakecsi.Probe].Begun
	s.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.Probe}}})
	for s.backend.Books().Methods[fakecsi.Probe].Begun == begun {
		h.until(http.StatusOK, "ok")
	}
	h.until(http.StatusOK, "ok")
}

func TestConnectionsThatSendNothingDoNotKeepTheKubeletOut(t *testing.T) {
	s := newScene(t, nil)
	h := s.health()
	idle := make([]net.Conn, maxConnections+1)
	for i := range idle {
		var err error
		if idle[i], err = net.Dial("tcp", h.address); err != nil {
			t.Fatal(err)
		}
		defer idle[i].Close()
	}
	if code, _ := h.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz is %d", code)
	}
}
