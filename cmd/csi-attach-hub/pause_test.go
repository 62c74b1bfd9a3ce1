package main

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Two hubs, four drivers, 60 volumes that are attached and detached all the time, and now
// one hub, now the other, now both are stopped for up to 4 s, with leases of 3 s.
// Two csi-attachers each make dozens of calls at once for one volume then.
//
// `make test` runs a short form. The long one has as many pauses as PAUSE_TEST says, 70
// take about three minutes, and PAUSE_SEED chooses others:
//
//	PAUSE_TEST=70 PAUSE_SEED=2 go test -race -v -run TestHubsThatArePaused ./cmd/csi-attach-hub
func TestHubsThatArePausedAtRandomNeverWorkOnOneVolumeAtOnce(t *testing.T) {
	t.Parallel()
	pauses, seed := fromEnvironment(t, "PAUSE_TEST", 8), uint64(fromEnvironment(t, "PAUSE_SEED", 1))
	s := newScene(t, "pause")
	s.allow(time.Minute + time.Duration(pauses)*10*time.Second)
	r := newReplicas(s, 4, fakecsi.Latency{Base: 50 * time.Millisecond, Jitter: 250 * time.Millisecond})
	s.config.WriteString("defaults: {timeout: 2s, retry: {max: 2s}}\n")
	hubs := []*testbed.Process{r.start(s.plane.Kubeconfig()), r.start(s.plane.Kubeconfig())}
	load := r.churn(15, seed)
	r.shared(2)

	random := rand.New(rand.NewPCG(seed, 0))
	upTo := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }
	began := time.Now()
	var paused sync.WaitGroup
	for range pauses {
		// Mostly one alone; now and then the second is stopped before the first goes on.
		hub, length := hubs[random.IntN(2)], 500*time.Millisecond+upTo(3500*time.Millisecond)
		wait := length + upTo(1500*time.Millisecond)
		if random.IntN(3) == 0 {
			wait = upTo(length)
		}
		paused.Go(func() { pauseFor(s.ctx, t, hub, length) })
		sleepFor(s.ctx, wait)
	}
	paused.Wait()
	took := time.Since(began)
	load.each("goes on after the pauses", func(c *churn) error { return c.WaitCycles(s.ctx, 5) })
	load.stop()
	calls := r.checkBooks()
	h := r.look()
	handed := 0
	for _, n := range h.transitions {
		handed += int(n)
	}
	t.Logf("seed %d: %d pauses in %v, %d cycles, %d calls, %d changes of holder, held at the end %v",
		seed, pauses, took.Round(time.Second), load.cycles(), calls, handed, h)
	for _, hub := range hubs {
		s.checkExit(hub)
	}
}

// pauseFor stops a process for some time. A process that is stopped already goes on when the
// first of the pauses is over.
func pauseFor(ctx context.Context, t *testing.T, p *testbed.Process, length time.Duration) {
	if err := p.Pause(); err != nil {
		t.Error(err)
	}
	sleepFor(ctx, length)
	if err := p.Resume(); err != nil {
		t.Error(err)
	}
}

// sleepFor waits: here time itself is what is tested with.
func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fromEnvironment returns the number in a variable.
func fromEnvironment(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		t.Fatalf("%s=%s: must be a number above 0", name, text)
	}
	return n
}
