package hub

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// endingSession is a session that makes no call.
type endingSession struct {
	Session
	ended context.Context
}

func (endingSession) Info() csiclient.Info     { return csiclient.Info{} }
func (s endingSession) Ended() context.Context { return s.ended }

// newEndingSession returns a session, and what ends it.
func newEndingSession(t *testing.T) (*liveSession, func()) {
	ended, end := context.WithCancel(t.Context())
	return newLiveSession(endingSession{ended: ended}, &attach.Redactor{}), end
}

func TestDriverOwesAnAnswerSinceTheFirstCallAfterItsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
		first, _ := newEndingSession(t)
		second, endSecond := newEndingSession(t)
		a, b := queue.ClaimKey("a"), queue.ClaimKey("b")
		entries := map[queue.Key]bool{a: true, b: true}
		has := func(key queue.Key) bool { return entries[key] }
		call := func(s *liveSession, key queue.Key, seconds int) func() {
			return func() {
				time.Sleep(time.Until(at(seconds)))
				s.CallBegins(key)
			}
		}
		ended := func(key queue.Key) func() { return func() { delete(entries, key) } }
		for _, step := range []struct {
			what    string
			do      func()
			session *liveSession
			want    int // seconds; 0: nothing is owed
		}{
			{"a call begins", call(first, a, 1), first, 1},
			{"another call begins", call(first, b, 2), first, 1},
			{"the first timed out and is tried again", call(first, a, 3), first, 1},
			{"the other one is answered", first.Answered, first, 0},
			{"the next call begins", call(first, b, 5), first, 5},
			{"another one begins", call(first, a, 6), first, 5},
			{"an item ends without an answer", ended(b), first, 6},
			{"the other item ends too", ended(a), first, 0},
			{"a call begins days later", func() { entries[a] = true; call(first, a, 200000)() }, first, 200000},
			{"there is another session", func() {}, second, 0},
			{"a call begins there", call(second, a, 200001), second, 200001},
			{"the call on the former session is answered", first.Answered, second, 200001},
			{"the session ends", endSecond, second, 0},
			{"there is no session", func() {}, nil, 0},
		} {
			step.do()
			got := step.session.unansweredSince(has)
			if want := at(step.want); step.want == 0 && !got.IsZero() || step.want > 0 && !got.Equal(want) {
				t.Errorf("%s: unanswered since %s, want %s", step.what, got, want)
			}
		}
	})
}

// repeat runs periodic work at its times until ctx ends, and then closes the channel.
func repeat(ctx context.Context, p *periodic, settings registry.Settings) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			p.since = time.Now()
			if sleep(ctx, p.pause(settings)); ctx.Err() == nil {
				p.run(ctx)
			}
		}
	}()
	return done
}

func TestHangingDriverIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer cancel()
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		d := routed(t)
		d.logger = logger
		session, _ := newEndingSession(t)
		d.update(func(s *driverState) { s.session = session })
		done := repeat(ctx, d.hangingCheck(), d.settings())
		begin := func(name string) {
			d.queue.Add(queue.ClaimKey(name), queue.AttachLane, queue.Place{})
			d.queue.CallBegins(queue.ClaimKey(name), "ControllerPublishVolume")
			session.CallBegins(queue.ClaimKey(name))
		}
		end := func(name string) {
			d.queue.CallEnds(queue.ClaimKey(name))
			session.Answered()
		}
		begin("quick")
		time.Sleep(30 * time.Second)
		end("quick")
		for _, name := range []string{"oldest", "other"} {
			begin(name)
			time.Sleep(time.Second)
		}
		time.Sleep(5*time.Minute - 12*time.Second) // until 5m20s
		end("oldest")
		end("other")
		<-done
		lines := strings.Split(strings.TrimSpace(logger.GetSink().(ktesting.Underlier).GetBuffer().String()), "\n")
		if len(lines) != 4 { // a minute after the call began, and then each minute
			t.Fatalf("got %q, want a line for each minute", lines)
		}
		if want := `for="1m0s" callsInFlight=2`; !strings.Contains(lines[0], want) {
			t.Errorf("got %q, want %q", lines[0], want)
		}
	})
}

// Each call of a silent driver ends at its timeout, and the next one is young again.
func TestDriverThatAnswersNoCallIsLoggedAlthoughItsCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		d := routed(t)
		d.logger = logger
		session, _ := newEndingSession(t)
		d.update(func(s *driverState) { s.session = session })
		key := queue.ClaimKey("silent")
		d.queue.Add(key, queue.AttachLane, queue.Place{})
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		done := repeat(ctx, d.hangingCheck(), d.settings())
		for range 9 { // 90 s
			session.CallBegins(key)
			time.Sleep(10 * time.Second)
		}
		<-done
		logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if want := `Driver answers no call for="1m0s"`; strings.Count(logged, "\n") != 1 || !strings.Contains(logged, want) {
			t.Errorf("got %q, want one line %q", logged, want)
		}
	})
}
