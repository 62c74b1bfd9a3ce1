package csiclient

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

func TestCallThatFailsItsLastCheckIsNotSentAndEndsTheSession(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	var checks atomic.Int32
	check := func(longest time.Duration) error {
		checks.Add(1)
		if deadline, _ := ctx.Deadline(); longest < time.Until(deadline) {
			t.Errorf("asked about %v, which is less than what is left", longest)
		}
		return nil
	}
	for range 3 {
		if _, err := s.ControllerPublishVolume(WithLastCheck(ctx, check), publishRequest("v")); err != nil {
			t.Fatalf("allowed: %v", err)
		}
	}
	if err := s.Probe(ctx); err != nil {
		t.Fatalf("a call without a check: %v", err)
	}
	if n := checks.Load(); n != 3 {
		t.Errorf("%d checks for 3 calls", n)
	}
	refuse := func(time.Duration) error { return errors.New("too late") }
	if _, err := s.ControllerPublishVolume(WithLastCheck(ctx, refuse), publishRequest("w")); status.Code(err) != codes.Unavailable {
		t.Errorf("refused: %v, want Unavailable", err)
	}
	<-s.Ended().Done()
	if n := d.Books().Methods[fakecsi.ControllerPublishVolume].Begun; n != 3 {
		t.Errorf("the driver got %d calls, want those that were allowed, 3", n)
	}
}

// A call that has ended may still be on its way: gRPC sends what begins it all the same.
func TestCallThatEndsBeforeItIsSentIsCheckedAllTheSame(t *testing.T) {
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{})
	s := connect(ctx, t, d.endpoint)
	reached, pass := make(chan struct{}), make(chan struct{})
	hold := func(time.Duration) error { close(reached); <-pass; return nil } // all that is sent waits behind it
	first := make(chan error, 1)
	go func() {
		_, err := s.ControllerPublishVolume(WithLastCheck(ctx, hold), publishRequest("first"))
		first <- err
	}()
	<-reached
	refused := make(chan struct{})
	refuse := func(time.Duration) error { close(refused); return errors.New("too late") }
	short, cancel := context.WithTimeout(WithLastCheck(ctx, refuse), 3*time.Second) // it has to reach the queue before
	defer cancel()
	if _, err := s.ControllerPublishVolume(short, publishRequest("late")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the call that could not be sent ended with %v, want its deadline", err)
	}
	close(pass)
	select {
	case <-refused:
	case <-ctx.Done():
		t.Fatal("the call that had ended was not checked")
	}
	<-s.Ended().Done()
	<-first // it may have been answered, or not
	if calls := d.Books().CallsOf(fakecsi.ControllerPublishVolume, "late"); len(calls) > 0 {
		t.Errorf("the driver got the call: %+v", calls)
	}
}

func TestFramesAreFoundInTheBytesHoweverTheseAreCut(t *testing.T) {
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&sent, nil)
	for _, length := range []int{300, 1, 0, 40, 70000} {
		must(t, framer.WriteRawFrame(http2.FrameHeaders, 0, 1, make([]byte, length)))
		must(t, framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 2*length)))
	}
	for _, size := range []int{1, 2, 7, 9, 24, 33, 1000, sent.Len()} {
		s, begun := newFrameScanner(), 0
		for rest := sent.Bytes(); len(rest) > 0; {
			next := min(size, len(rest))
			begun += s.count(rest[:next], http2.FrameHeaders)
			rest = rest[next:]
		}
		if begun != 5 {
			t.Errorf("%d bytes at a time: %d frames, want 5", size, begun)
		}
	}
}
