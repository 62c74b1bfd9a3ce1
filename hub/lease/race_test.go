package lease

import (
	"context"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestAHolderThatRenewsAtTheLastMomentKeepsItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.make("d", "attacher-0", 1)
	var renewed sync.Once
	r := w.replicaThat(func(r *http.Request) bool {
		// The lease was read and found to have expired; now it is about to be taken.
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/"+registry.LeaseName("d")) {
			renewed.Do(func() {
				now, seconds := metav1.NowMicro(), int32(300)
				l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &now, &seconds
				if _, err := w.kube.CoordinationV1().Leases(w.namespace).Update(w.ctx, l, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		return false
	}, alone)
	r.hold("d")
	for w.ctx.Err() == nil { // until it has seen that it lost
		if h, ok := r.Holder(w.lease("d")); ok && h.Renewed.Equal(w.get("d").Spec.RenewTime.Time) && !h.Renewed.Equal(h.Since) {
			break
		}
		pause(w.ctx, 10*time.Millisecond)
	}
	r.waitsFor("d", "held by attacher-0")
	if h := w.holder("d"); h != "attacher-0" || r.termsBegun() > 0 {
		t.Errorf("the lease is held by %q, and was served %d times", h, r.termsBegun())
	}
}

// Two processes must never be within something that the fence let begin, whatever
// the network does to them.
func TestNeverTwoBeginOnOneLeaseThroughOutages(t *testing.T) {
	t.Parallel()
	const longest = 300 * time.Millisecond
	w := newWorld(t)
	fast := func(o *Options) {
		o.Duration, o.RenewDeadline, o.RetryPeriod = time.Second, 700*time.Millisecond, 150*time.Millisecond
	}
	var inside, calls, fenced, handovers atomic.Int32
	var last atomic.Pointer[Leases]
	var replicas []*replica
	var holds sync.WaitGroup
	ctx, cancel := context.WithCancel(w.ctx)
	for range 3 {
		r := w.replica(alone, fast)
		replicas = append(replicas, r)
		serve := func(stop context.Context, term *Term) error {
			if last.Swap(r.Leases) != r.Leases {
				handovers.Add(1)
			}
			for stop.Err() == nil {
				call, end := context.WithTimeout(stop, longest) // the deadline first, then the fence
				if term.Begin(longest) != nil {
					end()
					fenced.Add(1)
					pause(stop, 10*time.Millisecond)
					continue
				}
				if inside.Add(1) > 1 {
					t.Error("two processes work at once")
				}
				calls.Add(1)
				pause(call, time.Duration(rand.N(20))*time.Millisecond)
				inside.Add(-1)
				end()
			}
			return nil
		}
		holds.Go(func() {
			if err := r.Hold(klog.NewContext(ctx, klog.FromContext(r.base)), Candidacy{Driver: "d", Lease: w.lease("d"), Serve: serve}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 10 {
		for _, r := range replicas {
			if h, ok := r.Holder(w.lease("d")); ok && h.Mine || rand.N(4) == 0 {
				r.cutOff()
			}
		}
		pause(w.ctx, time.Duration(200+rand.N(1300))*time.Millisecond)
		for _, r := range replicas {
			r.cut.Store(false)
		}
		pause(w.ctx, time.Duration(rand.N(500))*time.Millisecond)
	}
	cancel()
	holds.Wait()
	t.Logf("%d calls, %d times fenced, %d changes of the holder", calls.Load(), fenced.Load(), handovers.Load())
	if calls.Load() == 0 || handovers.Load() < 2 {
		t.Error("the test did not test")
	}
}

func TestNothingRunsOnAfterRunAndHold(t *testing.T) {
	w := newWorld(t)
	a, b := w.replica(), w.replica()
	all := drivers(4)
	a.hold(all...)
	b.hold(all...)
	w.served(all, a, b)
	a.cutOff()
	for _, d := range all {
		b.term(d)
	}
	a.cut.Store(false)
	a.stop()
	b.stop()
	if left := goroutines(); left != "" {
		t.Errorf("still running:\n%s", left)
	}
	names, err := w.kube.CoordinationV1().Leases(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: replicaLabel + "=true"})
	if err != nil || len(names.Items) > 0 {
		t.Errorf("announcements are left: %v, %v", names.Items, err)
	}
}

// goroutines returns the stacks of what this package, an elector or a reflector runs.
func goroutines() string {
	buf := make([]byte, 1<<20)
	var left []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "goroutines()") || strings.Contains(stack, "testing.tRunner") {
			continue // the test itself
		}
		for _, ours := range []string{"hub/lease.", "tools/leaderelection", "tools/cache"} {
			if strings.Contains(stack, ours) {
				left = append(left, stack)
				break
			}
		}
	}
	return strings.Join(left, "\n\n")
}

func TestHoldingALeaseIsQuiet(t *testing.T) {
	w := newWorld(t)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(quietLevel-1), ktesting.BufferLogs(true)))
	ctx := klog.NewContext(w.ctx, logger)
	r := w.replica(alone)
	for range 2 {
		err := r.Hold(ctx, Candidacy{Driver: "d", Lease: w.lease("d"), Serve: func(context.Context, *Term) error { return nil }})
		if err != nil {
			t.Error(err)
		}
	}
	for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if line.Message != "Lease acquired" && line.Message != "Lease released" {
			t.Errorf("logged: %s %v", line.Message, line.WithKVList)
		}
	}
	if n := len(logger.GetSink().(ktesting.Underlier).GetBuffer().Data()); n != 4 {
		t.Errorf("%d lines, want 4", n)
	}
}
