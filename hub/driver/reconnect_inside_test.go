package driver

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// A leader begins beside the loop that connects the driver: each of the two has the leader act on the connection. An
// attach may fail between them. A driver that comes back is another matter.
func TestAConnectionThatIsReportedTwiceEndsNoBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := routed(t)
		l.connectTo(publishing{})
		must(t, cachetest.Put(l.driver.Cluster, routedAttachment()))
		l.driver.update(func(s *state) { s.leader = l })
		runs := 0
		go l.driver.Queue.Run(t.Context(), func(e *queue.Item) {
			runs++
			go l.driver.Queue.End(e, queue.BackOff(queue.AttachLane, time.Hour)) // it has failed
		})
		l.driver.setUp(true, func(*state) {})
		synctest.Wait()
		if runs != 1 {
			t.Fatalf("%d runs after the connection, want 1", runs)
		}
		l.connectionChanged() // by the run of the term
		synctest.Wait()
		if runs != 1 {
			t.Errorf("%d runs after the same connection, want 1", runs)
		}
		time.Sleep(time.Minute)
		l.driver.setUp(false, func(*state) {})
		l.driver.setUp(true, func(*state) {})
		synctest.Wait()
		if runs != 1 {
			t.Errorf("%d runs after a Probe has succeeded again, want 1", runs)
		}
		l.driver.setUp(false, func(*state) {})
		l.driver.setUp(true, func(s *state) { s.session = newLiveSession(publishing{}, l.driver.Redactor) })
		synctest.Wait()
		if runs != 2 {
			t.Errorf("%d runs after the driver was connected anew, want 2", runs)
		}
	})
}

// The loop that connects the driver may have a term look at the caches before the run of the term has begun.
func TestNoChangeIsMissedAfterTheFirstLookAtTheCaches(t *testing.T) {
	l := routed(t)
	l.connectTo(publishing{})
	l.driver.update(func(s *state) { s.leader = l })
	l.driver.setUp(true, func(*state) {})
	va := routedAttachment()
	must(t, cachetest.Put(l.driver.Cluster, va))
	l.driver.options.Routes.Handlers().Attachments.OnAdd(va, false)
	if !l.driver.Queue.Has(queue.AttachmentKey(va.Name)) {
		t.Error("the VolumeAttachment is found by the next Resync only")
	}
}
