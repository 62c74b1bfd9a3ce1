package driver

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
	return newLiveSession(endingSession{ended: ended}, &attach.Redactor{Publications: func() []map[string]string { return nil }}), end
}

func TestDriverOwesAnAnswerSinceTheFirstCallAfterItsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
		first, _ := newEndingSession(t)
		second, endSecond := newEndingSession(t)
		a, b := queue.AttachmentKey("a"), queue.AttachmentKey("b")
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
		} {
			step.do()
			got := step.session.UnansweredSince(has)
			if want := at(step.want); step.want == 0 && !got.IsZero() || step.want > 0 && !got.Equal(want) {
				t.Errorf("%s: unanswered since %s, want %s", step.what, got, want)
			}
		}
	})
}

func TestHangingDriverIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		d := routed(t)
		d.work.Logger = logger
		session, _ := newEndingSession(t)
		d.driver.update(func(s *state) { s.session = session })
		calls := func(names ...string) (end func()) {
			for _, name := range names {
				d.driver.Queue.Add(queue.AttachmentKey(name), queue.AttachLane, queue.Place{})
				d.driver.Queue.SetCall(queue.AttachmentKey(name), queue.Flight{Method: "ControllerPublishVolume", Since: time.Now(), VolumeAttachment: name})
				session.CallBegins(queue.AttachmentKey(name))
				time.Sleep(time.Second)
			}
			return func() {
				for _, name := range names {
					d.driver.Queue.SetCall(queue.AttachmentKey(name), queue.Flight{})
				}
				session.Answered()
			}
		}
		report := func() { time.Sleep(time.Minute); d.work.ReportOverdue(t.Context()) }
		end := calls("quick")
		time.Sleep(30 * time.Second)
		end()
		report()
		end = calls("oldest", "other")
		report()
		report()
		end()
		report()
		logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		for _, want := range []string{`volumeAttachment="oldest" for="1m2s" callsInFlight=2`, `volumeAttachment="oldest" for="2m2s" callsInFlight=2`} {
			if strings.Count(logged, "\n") != 2 || !strings.Contains(logged, want) {
				t.Errorf("got %q, want two lines, one with %q", logged, want)
			}
		}
	})
}

// Each call of a silent driver ends at its timeout, and the next one is young again.
func TestDriverThatAnswersNoCallIsLoggedAlthoughItsCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
		d := routed(t)
		d.work.Logger = logger
		session, _ := newEndingSession(t)
		d.driver.update(func(s *state) { s.session = session })
		key := queue.AttachmentKey("silent")
		d.driver.Queue.Add(key, queue.AttachLane, queue.Place{})
		for range 6 {
			d.work.ReportOverdue(t.Context())
			session.CallBegins(key)
			time.Sleep(10 * time.Second)
		}
		d.work.ReportOverdue(t.Context())
		logged := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if want := `Driver answers no call for="1m0s"`; strings.Count(logged, "\n") != 1 || !strings.Contains(logged, want) {
			t.Errorf("got %q, want one line %q", logged, want)
		}
	})
}
