package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// silence bounds the time without a line of progress.
const silence = 15 * time.Second

// narrator writes the progress of a case, and at least one line in silence. Its methods may be called from any goroutine.
type narrator struct {
	name  string
	clock *stopwatch

	mu       sync.Mutex
	out      io.Writer // guarded by mu, as all below
	forecast *forecast
	last     time.Time // of a line
	step     string    // what goes on
	changing string    // what volumes become at the moment, such as "attached"; empty: nothing
	since    time.Time // the beginning of that

	ended     chan struct{}
	following sync.WaitGroup
}

// narrate begins to write. The caller must call stop.
func narrate(out io.Writer, name string, clock *stopwatch, f *forecast) *narrator {
	n := &narrator{name: name, clock: clock, forecast: f, out: out, last: time.Now(), step: "preparing", ended: make(chan struct{})}
	n.following.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				n.breakSilence()
			case <-n.ended:
				return
			}
		}
	})
	return n
}

func (n *narrator) stop() {
	close(n.ended)
	n.following.Wait()
}

// say writes a line.
func (n *narrator) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.write(fmt.Sprintf(format, args...))
}

// write writes a line. The caller holds mu.
func (n *narrator) write(text string) {
	n.last = time.Now()
	fmt.Fprintf(n.out, "%s  %s: %s\n", n.last.Format(time.TimeOnly), n.name, text)
}

// turn writes that a turn begins.
func (n *narrator) turn(round, rounds, turn, turns int, competitor string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.forecast.ready {
		n.forecast.prepared()
	}
	n.step = fmt.Sprintf("round %d of %d, turn %d of %d: %s", round+1, rounds, turn+1, turns, competitor)
	n.write(n.step + "; " + n.forecast.text(time.Now()))
}

// turnEnded notes the length of a turn.
func (n *narrator) turnEnded(took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forecast.turnEnded(took)
}

// follow says in later lines how many volumes have become what they should, until the caller calls the function it returns.
func (n *narrator) follow(what string) (end func()) {
	set := func(what string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changing, n.since = what, time.Now()
	}
	set(what)
	return func() { set("") }
}

// breakSilence writes what goes on if nothing was written for long.
func (n *narrator) breakSilence() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.last) < silence-time.Second/2 {
		return
	}
	text := n.step
	if n.changing != "" {
		there, want := n.clock.progress()
		text += ": " + changeText(there, want, n.changing, now.Sub(n.since))
	} else {
		text += fmt.Sprintf(", for %v", now.Sub(n.forecast.began).Round(time.Second))
	}
	n.write(text + "; " + n.forecast.text(now))
}
