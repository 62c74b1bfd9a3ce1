package csiclient

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// publish makes a call and sends how it ended.
func publish(ctx context.Context, s *Session, volume string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := s.ControllerPublishVolume(ctx, publishRequest(volume))
		ended <- err
	}()
	return ended
}

// hangingPublish makes a call that waits in the driver until Knobs.ReleaseAll.
func hangingPublish(ctx context.Context, t *testing.T, d driver, s *Session) <-chan error {
	t.Helper()
	d.setKnobs(t, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
	ended := publish(ctx, s, "v")
	d.awaitCall(ctx, t, fakecsi.ControllerPublishVolume, 1)
	return ended
}

func assertOpen(t *testing.T, s *Session) {
	t.Helper()
	select {
	case <-s.Ended().Done():
		t.Error("the Session is done")
	default:
	}
}

func TestProbeTellsWhetherTheDriverIsReady(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	if err := s.Probe(ctx); err != nil {
		t.Errorf("ready: got %v", err)
	}
	d.setKnobs(t, fakecsi.Knobs{NotReady: new(true)})
	if err := s.Probe(ctx); !errors.Is(err, ErrNotReady) {
		t.Errorf("not ready: got %v", err)
	}
	d.setKnobs(t, fakecsi.Knobs{NotReady: new(false), Fail: []fakecsi.Fault{{Method: fakecsi.Probe, Code: codes.FailedPrecondition}}})
	if err := s.Probe(ctx); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("failing: got %v", err)
	}
	s.Close()
	if err := s.Probe(ctx); status.Code(err) != codes.Unavailable {
		t.Errorf("closed: got %v", err)
	}
}

func TestSessionNeverDialsAgain(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	inFlight := hangingPublish(ctx, t, d, s)
	assertOpen(t, s)
	d.server.Crash()
	<-s.Ended().Done()
	if err := <-inFlight; status.Code(err) != codes.Unavailable {
		t.Errorf("the call in flight got %v", err)
	}
	must(t, d.server.Start())
	connect(ctx, t, d.endpoint) // another Session can
	for range 3 {
		if err := <-publish(ctx, s, "v"); status.Code(err) != codes.Unavailable {
			t.Errorf("got %v", err)
		}
	}
	if begun := d.Books().Methods[fakecsi.ControllerPublishVolume].Begun; begun != 1 {
		t.Errorf("%d calls, of which all but the first reached a process that was not verified", begun)
	}
}

func TestCallInFlightEndsAfterClose(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	inFlight := hangingPublish(ctx, t, d, s)
	s.Close()
	<-s.Ended().Done()
	if err := <-publish(ctx, s, "w"); status.Code(err) != codes.Unavailable {
		t.Errorf("a call after Close got %v", err)
	}
	d.setKnobs(t, fakecsi.Knobs{ReleaseAll: true})
	if err := <-inFlight; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	if begun := d.Books().Methods[fakecsi.ControllerPublishVolume].Begun; begun != 1 {
		t.Errorf("%d calls reached the driver, want the one before Close", begun)
	}
}

func TestDriverThatStopsStillAnswersWhatItHasTaken(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	inFlight := hangingPublish(ctx, t, d, s)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		d.server.Stop(ctx)
	}()
	<-s.Ended().Done() // the server has asked its clients to go
	s.Close()
	d.setKnobs(t, fakecsi.Knobs{ReleaseAll: true})
	if err := <-inFlight; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	<-stopped
}

func TestCallsAreCountedUntilTheSessionIsClosed(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	var mu sync.Mutex
	counted := map[string]int{}
	s, err := Connect(ctx, at(d.endpoint), func(method string, code codes.Code, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		counted[method+" "+code.String()]++
	})
	must(t, err)
	t.Cleanup(s.Close)
	<-publish(ctx, s, "v")
	d.setKnobs(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Code: codes.NotFound}}})
	<-publish(ctx, s, "v")
	s.Close()
	<-publish(ctx, s, "v")
	mu.Lock()
	defer mu.Unlock()
	const method = "/csi.v1.Controller/ControllerPublishVolume "
	if counted["/csi.v1.Identity/Probe OK"] != 1 || counted[method+"OK"] != 1 || counted[method+"NotFound"] != 1 || counted[method+"Unavailable"] != 0 {
		t.Errorf("the calls were counted as %v", counted)
	}
}
