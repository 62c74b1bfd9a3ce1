package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// replicas are several hubs that share the drivers of a scene. Their leases are in a
// namespace of their own.
type replicas struct {
	*scene
	namespace string
	leases    []string // flags
	started   int
	backends  map[string]*fakecsi.Backend // by driver
}

// newReplicas serves n drivers, whose calls take latency, in the test's process. It starts
// no hub.
func newReplicas(s *scene, n int, latency fakecsi.Latency) *replicas {
	s.t.Helper()
	r := &replicas{scene: s, namespace: s.prefix, leases: shortLeases, backends: map[string]*fakecsi.Backend{}}
	_, err := s.plane.Clientset().CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range n {
		name := fmt.Sprintf("d%d", i)
		_, socket := s.entry(name)
		driver, backend := s.serve(name, socket)
		if err := backend.Set(fakecsi.AttachLatency(latency)); err != nil {
			s.t.Fatal(err)
		}
		r.backends[driver] = backend
	}
	return r
}

// start starts one more hub, with a log of its own.
func (r *replicas) start(kubeconfig string, args ...string) *testbed.Process {
	r.t.Helper()
	config := filepath.Join(r.dir, "drivers.yaml")
	if err := os.WriteFile(config, r.config.Bytes(), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.started++
	name := fmt.Sprintf("hub%d", r.started)
	p, err := testbed.StartHub(r.ctx, testbed.HubOptions{
		Name: name, Binary: r.binary("./cmd/csi-attach-hub"), Kubeconfig: kubeconfig, Config: config, Verbosity: 2,
		LogPath: filepath.Join(r.dir, name+".log"),
		Args:    slices.Concat(r.leases, []string{"--leader-election-namespace", r.namespace}, args),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	testbed.KillAtEnd(r.t, p)
	return p
}

// holding says who holds what, and who is there.
type holding struct {
	holders map[string]string // by driver; those that nobody holds are left out
	// acquired is when, by the holder's clock.
	acquired    map[string]time.Time
	transitions map[string]int32
	living      []string // identities of the replicas that are announced
}

// look asks the API server.
func (r *replicas) look() holding {
	r.t.Helper()
	list, err := r.plane.Clientset().CoordinationV1().Leases(r.namespace).List(r.ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	drivers := map[string]string{}
	for _, driver := range r.drivers {
		drivers[registry.LeaseName(driver)] = driver
	}
	h := holding{holders: map[string]string{}, acquired: map[string]time.Time{}, transitions: map[string]int32{}}
	for _, l := range list.Items {
		holder := holderOf(&l)
		driver, ok := drivers[l.Name]
		switch {
		case holder == "":
		case ok:
			h.holders[driver] = holder
			h.acquired[driver] = l.Spec.AcquireTime.Time
			if l.Spec.LeaseTransitions != nil {
				h.transitions[driver] = *l.Spec.LeaseTransitions
			}
		default:
			h.living = append(h.living, holder)
		}
	}
	slices.Sort(h.living)
	return h
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// loads is how many drivers each replica holds.
func (h holding) loads() map[string]int {
	loads := map[string]int{}
	for _, id := range h.holders {
		loads[id]++
	}
	return loads
}

func (h holding) String() string { return fmt.Sprint(slices.Sorted(maps.Values(h.loads()))) }

// moved are the drivers that somebody else holds now.
func (h holding) moved(before holding) []string {
	var moved []string
	for driver, id := range h.holders {
		if before.holders[driver] != id {
			moved = append(moved, driver)
		}
	}
	return moved
}

// await looks until holds says so, and returns what it saw and when.
func (r *replicas) await(what string, holds func(holding) bool) (holding, time.Time) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		h := r.look()
		if holds(h) {
			return h, time.Now()
		}
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			r.t.Fatalf("never saw %s: held %s by %v, there are %v", what, h, h.loads(), h.living)
		}
	}
}

// shared waits until n replicas hold all drivers and nothing has moved any more for
// longer than a replica waits before it hands something over. It returns since when
// that is so.
func (r *replicas) shared(n int) (holding, time.Time) {
	r.t.Helper()
	const quiet = 2 * time.Second
	var last holding
	var since time.Time
	h, _ := r.await(fmt.Sprintf("%d replicas sharing all drivers", n), func(h holding) bool {
		if len(h.moved(last)) > 0 || len(h.holders) != len(last.holders) || len(h.loads()) != n || len(h.holders) != len(r.drivers) {
			last, since = h, time.Now()
		}
		return time.Since(since) > quiet
	})
	most := (3*len(r.drivers) + 2*n - 1) / (2 * n)
	for id, load := range h.loads() {
		if load > most {
			r.t.Errorf("%s holds %d of %d drivers, with %d replicas at most %d", id, load, len(r.drivers), n, most)
		}
	}
	return h, since
}

// checkMoves reports drivers that have moved though they need not have. A replica that had
// or has its fill may have been passed over, which moves a driver more.
func (r *replicas) checkMoves(before, after holding, mustMove func(driver string) bool) (moved int) {
	r.t.Helper()
	n := len(after.loads())
	full := func(h holding) bool {
		n := len(h.loads())
		return slices.Max(slices.Collect(maps.Values(h.loads()))) >= (3*len(r.drivers)+2*n-1)/(2*n)
	}
	for _, driver := range after.moved(before) {
		moved++
		if !mustMove(driver) && (n == 1 || !full(before) && !full(after)) {
			r.t.Errorf("%s has moved from %s to %s", driver, before.holders[driver], after.holders[driver])
		}
	}
	return moved
}

// servedAgain returns when the last of the drivers was called for the first time since its
// lease was acquired.
func (r *replicas) servedAgain(h holding, drivers []string) time.Time {
	r.t.Helper()
	var last time.Time
	for _, driver := range drivers {
		var first time.Time
		err := r.backends[driver].Wait(r.ctx, func(b fakecsi.Books) bool {
			for _, c := range slices.Concat(b.Calls, b.Running) {
				if (c.Method == fakecsi.ControllerPublishVolume || c.Method == fakecsi.ControllerUnpublishVolume) &&
					c.Start.After(h.acquired[driver]) && (first.IsZero() || c.Start.Before(first)) {
					first = c.Start
				}
			}
			return !first.IsZero()
		})
		if err != nil {
			r.t.Fatalf("%s was not called after it had moved: %v", driver, err)
		}
		if first.After(last) {
			last = first
		}
	}
	return last
}

// checkBooks waits until nothing is attached: a volume whose VolumeAttachment vanished is detached later than the
// VolumeAttachment goes. It reports calls at once for one volume and attaches elsewhere, and returns how many calls there were.
func (r *replicas) checkBooks() (calls int) {
	r.t.Helper()
	for driver, backend := range r.backends {
		if err := backend.Wait(r.ctx, func(b fakecsi.Books) bool { return len(b.Attached) == 0 }); err != nil {
			r.t.Errorf("%s: %d volumes are still attached: %v", driver, len(backend.Books().Attached), err)
		}
		b := backend.Books()
		calls += b.Methods[fakecsi.ControllerPublishVolume].Begun + b.Methods[fakecsi.ControllerUnpublishVolume].Begun
		if b.ViolationCount == 0 {
			continue
		}
		r.t.Errorf("%s: %d violations", driver, b.ViolationCount)
		for _, v := range b.Violations {
			r.t.Errorf("%s %s %s nodes %v: %s", v.Time.Format(time.StampMicro), v.Rule, v.Volume, v.Nodes, v.Detail)
			for _, c := range slices.Concat(b.Calls, b.Running) {
				if c.Volume == v.Volume && v.Time.Sub(c.Start).Abs() < 10*time.Second {
					r.t.Logf("  call %d %s to %s from %s to %s: %s %s", c.ID, c.Method, c.Node, c.Start.Format(time.StampMicro), c.End.Format(time.StampMicro), c.Code, c.Error)
				}
			}
		}
	}
	return calls
}

// The long form, with other times than those of shortLeases, prints how long it takes
// until all is served again:
//
//	REPLICA_LEASES="15s 10s 5s" go test -race -v -run TestReplicasShare ./cmd/csi-attach-hub
func TestReplicasShareTheDriversWhoeverComesAndGoes(t *testing.T) {
	t.Parallel()
	s := newScene(t, "replicas")
	s.allow(5 * time.Minute)
	r := newReplicas(s, 30, fakecsi.Latency{Base: 20 * time.Millisecond, Jitter: 60 * time.Millisecond})
	if times := strings.Fields(os.Getenv("REPLICA_LEASES")); len(times) == 3 {
		r.leases = []string{"--leader-election-lease-duration=" + times[0], "--leader-election-renew-deadline=" + times[1], "--leader-election-retry-period=" + times[2]}
	}
	hubs := map[string]*testbed.Process{} // by identity
	began := time.Now()
	for range 3 {
		p := r.start(s.plane.Kubeconfig())
		hubs[fmt.Sprint(p.PID())] = p
	}
	now, since := r.shared(3)
	handed := 0
	for _, n := range now.transitions {
		handed += int(n)
	}
	t.Logf("three at once: %s after %v, %d drivers handed over on the way", now, since.Sub(began).Round(time.Millisecond), handed)
	load := s.churn(2, 1)
	load.each("begins", func(c *churn) error { return c.WaitCycles(s.ctx, 2) })

	// end ends one of the replicas that hold drivers and checks that only those move
	// that it had.
	end := func(what string, n int, how func(*testbed.Process)) {
		t.Helper()
		before := now
		began := time.Now()
		for pid, p := range hubs {
			how(p)
			delete(hubs, pid)
			break
		}
		stopped := time.Now()
		gone := func(h holding) string {
			var missing []string
			for id := range before.loads() {
				if h.loads()[id] == 0 {
					missing = append(missing, id)
				}
			}
			return strings.Join(missing, ",")
		}
		now, _ = r.shared(n)
		left := gone(now)
		moved := r.checkMoves(before, now, func(driver string) bool { return before.holders[driver] == left })
		var taken time.Time
		for _, driver := range now.moved(before) {
			if now.acquired[driver].After(taken) {
				taken = now.acquired[driver]
			}
		}
		served := r.servedAgain(now, now.moved(before))
		t.Logf("%s: %s, then %s; %d moved, it had %d; ended after %v, all leases held after %v, all drivers called after %v", what, before, now, moved,
			before.loads()[left], stopped.Sub(began).Round(time.Millisecond), taken.Sub(began).Round(time.Millisecond), served.Sub(began).Round(time.Millisecond))
	}
	join := func(n int) {
		t.Helper()
		before := now
		began := time.Now()
		p := r.start(s.plane.Kubeconfig())
		hubs[fmt.Sprint(p.PID())] = p
		var settled time.Time
		now, settled = r.shared(n)
		moved := r.checkMoves(before, now, func(driver string) bool {
			_, old := before.loads()[now.holders[driver]]
			return !old
		})
		t.Logf("one more: %s, then %s; %d moved, settled after %v, all drivers called after %v", before, now, moved,
			settled.Sub(began).Round(time.Millisecond), r.servedAgain(now, now.moved(before)).Sub(began).Round(time.Millisecond))
	}
	end("kill -9", 2, func(p *testbed.Process) { p.Kill() })
	join(3)
	end("SIGTERM", 2, func(p *testbed.Process) {
		if err := p.Stop(s.ctx, 30*time.Second); err != nil {
			t.Error(err)
		}
	})
	load.each("goes on", func(c *churn) error { return c.WaitCycles(s.ctx, 2) })
	load.stop()
	t.Logf("%d cycles, %d calls", load.cycles(), r.checkBooks())
	for _, p := range hubs {
		s.checkExit(p)
	}
}
