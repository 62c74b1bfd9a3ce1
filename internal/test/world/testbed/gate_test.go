package testbed

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestGateIsSilentWhileShutAndLetsThroughWhatWasSentMeanwhile(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	gate, err := newGate(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	ask := func(ctx context.Context) error {
		return Get(ctx, "http://"+gate.Address(), func(io.Reader) error { return nil })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := ask(ctx); err != nil {
		t.Fatalf("through the open gate: %v", err)
	}
	gate.Shut()
	short, cancelShort := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancelShort()
	if err := ask(short); err == nil || short.Err() == nil {
		t.Errorf("through the shut gate: %v, want silence until the deadline", err)
	}
	answer := make(chan error)
	go func() { answer <- ask(ctx) }()
	gate.Open()
	if err := <-answer; err != nil {
		t.Errorf("asked while it was shut, answered after: %v", err)
	}
}
