package driver

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
