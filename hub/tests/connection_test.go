package tests

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const memoryDriver = "memory.example.com"

// memoryWorld is a hub with one driver in virtual time, without an API server and sockets.
type memoryWorld struct {
	t       *testing.T
	api     *fakekube.API
	kube    kubernetes.Interface
	hub     *hub.Hub
	updates chan registry.Snapshot
	value   registry.Driver // as the hub serves it
	stop    func()          // ends the hub; it blocks until that has ended
	named   bool            // node and secret are there

	mu       sync.Mutex
	sessions []*memorySession // all that were dialled and verified; guarded by mu
	dials    int              // those that failed included; guarded by mu
}

// inMemory runs a test in virtual time, with a hub that gets its sessions from dial, which is
// told how many there have been.
func inMemory(t *testing.T, dial func(ctx context.Context, before int) (*memorySession, error), test func(*testing.T, *memoryWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &memoryWorld{t: t, api: fakekube.New(), updates: make(chan registry.Snapshot, 1)}
		w.kube = w.api.Client()
		var err error
		w.hub, err = hub.New(hub.Options{Kube: w.kube, Grace: time.Minute, Connect: func(ctx context.Context, _ registry.Driver) (hubdriver.Session, error) {
			w.mu.Lock()
			before := w.dials
			w.dials++
			w.mu.Unlock()
			s, err := dial(ctx, before)
			if err != nil {
				return nil, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.sessions = append(w.sessions, s)
			return s, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(0), ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		ended := make(chan error, 1)
		go func() { ended <- w.hub.Run(ctx, w.updates) }()
		w.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the hub ended with %v", err)
			}
		})
		defer w.stop()
		w.value = registry.Driver{Name: memoryDriver, Endpoint: "unix:///csi/memory", Settings: registry.DefaultSettings()}
		time.Sleep(time.Second) // its caches are filled
		w.serve()
		test(t, w)
	})
}

// serve has the hub serve the driver as w.value says, and waits until it does.
func (w *memoryWorld) serve() {
	w.updates <- registry.Snapshot{memoryDriver: w.value}
	synctest.Wait()
}

// attachment makes a volume and a VolumeAttachment of the name, on the node "node".
func (w *memoryWorld) attachment(name string) {
	w.t.Helper()
	create := func(objects ...testbed.Object) {
		w.t.Helper()
		if err := testbed.NewCluster(w.kube).Create(w.t.Context(), objects...); err != nil {
			w.t.Fatal(err)
		}
	}
	if !w.named {
		w.named = true
		create(testbed.CSINode{Node: "node", Drivers: map[string]string{memoryDriver: "id"}}, testbed.Secret{Namespace: "default", Name: "secret"})
	}
	create(testbed.PersistentVolume{Name: name, Driver: memoryDriver, Secret: &corev1.SecretReference{Namespace: "default", Name: "secret"}})
	create(testbed.VolumeAttachment{Name: name, Driver: memoryDriver, Node: "node", PersistentVolume: name})
	synctest.Wait()
}

// status returns that of a VolumeAttachment.
func (w *memoryWorld) status(name string) storagev1.VolumeAttachmentStatus {
	w.t.Helper()
	va, err := w.kube.StorageV1().VolumeAttachments().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return va.Status
}

// secretReads is how often the hub has read the secret.
func (w *memoryWorld) secretReads() int { return w.api.Count("get", "secrets") }

func (w *memoryWorld) isAttached(name string) bool {
	return w.status(name).Attached
}

// dialled returns how often the driver was dialled, and the sessions that came of it.
func (w *memoryWorld) dialled() (int, []*memorySession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials, slices.Clone(w.sessions)
}

// checkState checks what the hub shows of the driver.
func (w *memoryWorld) checkState(when, state, words string) {
	w.t.Helper()
	if got, _ := shown(w.hub, memoryDriver); got.State != string(state) || !strings.Contains(got.Reason, words) {
		w.t.Errorf("%s the driver is %s: %q, want %s and a reason with %q", when, got.State, got.Reason, state, words)
	}
}

// memorySession is a session of a driver whose answers are functions; nil answers at once. It
// ends as csiclient's does: closed, it takes no call, and those in flight go on.
type memorySession struct {
	probe   func(context.Context) error
	publish func(context.Context, *csi.ControllerPublishVolumeRequest) error

	// toldLate: who asks for Ended first is not told that the session has ended.
	toldLate bool

	mu        sync.Mutex
	ended     context.Context // made when it is first asked for; guarded by mu
	end       func()          // ends it; guarded by mu
	closed    bool            // guarded by mu
	published []string        // volumes of the calls; guarded by mu
}

func (s *memorySession) Info() csiclient.Info {
	return csiclient.Info{Name: memoryDriver, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
}

func (s *memorySession) Ended() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.toldLate && s.ended == nil {
		s.ending()
		s.end()
		return context.Background()
	}
	return s.ending()
}

// ending returns the context of Ended. The caller holds the mutex.
func (s *memorySession) ending() context.Context {
	if s.ended == nil {
		s.ended, s.end = context.WithCancel(context.Background())
	}
	return s.ended
}

// goAway ends the session as a driver does that asks its clients to go away.
func (s *memorySession) goAway() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending()
	s.end()
}

func (s *memorySession) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.ending()
	s.end()
}

func (s *memorySession) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// calls returns the volumes of the calls that were made.
func (s *memorySession) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.published)
}

func (s *memorySession) Probe(ctx context.Context) error {
	if s.probe == nil {
		return nil
	}
	return s.probe(ctx)
}

func (s *memorySession) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s.mu.Lock()
	s.published = append(s.published, r.VolumeId)
	ended, made := s.ending().Err() != nil, len(s.published)
	s.mu.Unlock()
	if made >= 1000 {
		<-ctx.Done() // virtual time stands still while calls are made without a pause
	}
	if ended {
		return nil, grpcstatus.Error(codes.Unavailable, "the connection has ended")
	}
	if s.publish != nil {
		if err := s.publish(ctx, r); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (s *memorySession) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (s *memorySession) ListVolumes(context.Context, int) (csiclient.Published, time.Duration, error) {
	return csiclient.Published{}, 0, nil
}

// hangs is a Probe that is never answered.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return grpcstatus.FromContextError(ctx.Err()).Err()
}

func TestADriverThatAnswersNothingIsDialledAnew(t *testing.T) {
	for name, probe := range map[string]func(context.Context) error{
		"it hangs": hangs,
	} {
		t.Run(name, func(t *testing.T) {
			dial := func(_ context.Context, before int) (*memorySession, error) {
				if before == 0 {
					return &memorySession{probe: probe}, nil
				}
				return &memorySession{}, nil // another process, which is well
			}
			inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
				w.checkState("at first", status.StateReady, "")
				time.Sleep(5 * time.Minute)
				w.attachment("v")
				time.Sleep(time.Minute)
				w.checkState("later", status.StateReady, "")
				dials, sessions := w.dialled()
				if dials != 2 {
					t.Errorf("dialled %d times, want 2", dials)
				}
				if !sessions[0].isClosed() {
					t.Error("the first connection was not closed")
				}
				if !w.isAttached("v") {
					t.Error("the volume is not attached")
				}
			})
		})
	}
}

func TestCallsInFlightSurviveADialAnew(t *testing.T) {
	answer := make(chan struct{})
	dial := func(_ context.Context, before int) (*memorySession, error) {
		if before > 0 {
			return &memorySession{}, nil
		}
		return &memorySession{probe: hangs, publish: func(ctx context.Context, _ *csi.ControllerPublishVolumeRequest) error {
			select {
			case <-answer:
				return nil
			case <-ctx.Done():
				return grpcstatus.FromContextError(ctx.Err()).Err()
			}
		}}, nil
	}
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		answer = make(chan struct{}) // of this bubble
		w.value.Timeout = 24 * time.Hour
		w.serve()
		w.attachment("long")
		time.Sleep(time.Hour)
		w.attachment("later")
		time.Sleep(time.Minute)
		_, sessions := w.dialled()
		if len(sessions) != 2 || !sessions[0].isClosed() {
			t.Fatalf("%d connections, want a second one in the place of the first", len(sessions))
		}
		if w.isAttached("long") || !w.isAttached("later") {
			t.Errorf("attached: long %v, later %v; want only the one that was called for on the second connection", w.isAttached("long"), w.isAttached("later"))
		}
		close(answer)
		synctest.Wait()
		if !w.isAttached("long") {
			t.Errorf("the call that was in flight on the first connection was answered, and the volume is not attached: %v", w.status("long"))
		}
		if first, second := sessions[0].calls(), sessions[1].calls(); len(first) != 1 || len(second) != 1 {
			t.Errorf("calls on the first connection %v, on the second %v: want one each", first, second)
		}
	})
}

func TestACallOnAConnectionThatWasReplacedIsCutAtTheEndOfTheGrace(t *testing.T) {
	dial := func(_ context.Context, before int) (*memorySession, error) {
		if before > 0 {
			return &memorySession{}, nil
		}
		return &memorySession{probe: hangs, publish: func(ctx context.Context, _ *csi.ControllerPublishVolumeRequest) error { return hangs(ctx) }}, nil
	}
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		w.value.Timeout = 24 * time.Hour
		w.serve()
		w.attachment("v")
		time.Sleep(time.Hour)
		if _, sessions := w.dialled(); len(sessions) != 2 || len(sessions[0].calls()) != 1 {
			t.Fatalf("%d connections, want a second one while the call on the first is in flight", len(sessions))
		}
		began := time.Now()
		w.stop()
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the hub has ended after %v, want the grace of 1m", took)
		}
	})
}

// What a driver makes the hub do in goroutines of their own must not end the process.
func TestPanicInAProbeOrADialAnewRestartsTheDriver(t *testing.T) {
	for name, dial := range map[string]func(context.Context, int) (*memorySession, error){
		"probe": func(_ context.Context, before int) (*memorySession, error) {
			if before > 0 {
				return &memorySession{}, nil
			}
			return &memorySession{probe: func(context.Context) error { panic("odd answer") }}, nil
		},
		"connecting anew": func(_ context.Context, before int) (*memorySession, error) {
			switch before {
			case 0:
				return &memorySession{probe: hangs}, nil
			case 1:
				panic("odd answer")
			}
			return &memorySession{}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
				time.Sleep(5 * time.Minute)
				w.checkState("in the end", status.StateReady, "")
				w.attachment("v")
				if _, sessions := w.dialled(); len(sessions) != 2 || !sessions[0].isClosed() || !w.isAttached("v") {
					t.Errorf("%d connections, attached: %v; want a second connection in the place of the first, and the volume attached", len(sessions), w.isAttached("v"))
				}
			})
		})
	}
}

// A driver that warms up, say: the process is alive, and a call that it has taken may succeed.
func TestADriverThatIsNotReadyForLongKeepsItsConnection(t *testing.T) {
	var mu sync.Mutex
	ready := true
	set := func(to bool) { mu.Lock(); defer mu.Unlock(); ready = to }
	probe := func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if !ready {
			return csiclient.ErrNotReady
		}
		return nil
	}
	dial := func(ctx context.Context, _ int) (*memorySession, error) {
		if err := probe(ctx); err != nil {
			return nil, err
		}
		return &memorySession{probe: probe, publish: func(ctx context.Context, _ *csi.ControllerPublishVolumeRequest) error {
			select {
			case <-time.After(2 * time.Hour):
				return nil
			case <-ctx.Done():
				return grpcstatus.FromContextError(ctx.Err()).Err()
			}
		}}, nil
	}
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		w.value.Timeout = 24 * time.Hour
		w.serve()
		w.attachment("v")
		set(false)
		for range 60 {
			time.Sleep(time.Minute)
			w.checkState("meanwhile", status.StateProbing, "not ready")
		}
		if dials, _ := w.dialled(); dials != 1 {
			t.Errorf("dialled %d times in an hour, want once: it answers", dials)
		}
		time.Sleep(time.Millisecond) // no Probe and no dial is under way: either may be first at one instant
		set(true)
		time.Sleep(2 * time.Hour)
		w.checkState("in the end", status.StateReady, "")
		if _, sessions := w.dialled(); len(sessions) != 1 || sessions[0].isClosed() || len(sessions[0].calls()) != 1 || !w.isAttached("v") {
			t.Errorf("%d connections, the volume attached: %v; want it to be so by one call on the first connection", len(sessions), w.isAttached("v"))
		}
	})
}

func TestAnAnswerToACallKeepsAConnectionWhoseProbesHang(t *testing.T) {
	dial := func(context.Context, int) (*memorySession, error) {
		return &memorySession{probe: hangs, publish: func(context.Context, *csi.ControllerPublishVolumeRequest) error {
			time.Sleep(50 * time.Second) // until the second Probe hangs
			return nil
		}}, nil
	}
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		w.value.Timeout = time.Hour
		w.serve()
		w.attachment("v")
		time.Sleep(80 * time.Second)
		if dials, _ := w.dialled(); dials != 1 || !w.isAttached("v") {
			t.Errorf("dialled %d times, attached: %v", dials, w.isAttached("v"))
		}
		time.Sleep(time.Minute)
		if dials, _ := w.dialled(); dials < 2 {
			t.Error("the driver was not dialled anew when it had answered nothing for 30 s")
		}
	})
}

// The process does one thing at a time, so that neither a Probe nor a new connection is answered during a call that takes long.
func TestVolumeWhoseCallsSilenceTheDriverKeepsItsBackoff(t *testing.T) {
	var busy atomic.Bool
	var calls atomic.Int32
	answer := func(ctx context.Context) error {
		if busy.Load() {
			return hangs(ctx)
		}
		return nil
	}
	dial := func(ctx context.Context, _ int) (*memorySession, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := answer(ctx); err != nil {
			return nil, err
		}
		return &memorySession{probe: answer, publish: func(context.Context, *csi.ControllerPublishVolumeRequest) error {
			calls.Add(1)
			busy.Store(true)
			defer busy.Store(false)
			time.Sleep(2 * time.Minute)
			return grpcstatus.Error(codes.Internal, "the volume is broken")
		}}, nil
	}
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		w.value.Timeout, w.value.Retry = time.Hour, registry.Retry{Initial: time.Hour, Max: time.Hour}
		w.serve()
		w.attachment("v")
		time.Sleep(12 * time.Hour)
		if n := calls.Load(); n < 8 || n > 20 {
			t.Errorf("%d calls in 12 hours for a volume that is tried once an hour", n)
		}
	})
}

func TestTheEndOfAConnectionIsSeenWhileAProbeIsInFlight(t *testing.T) {
	dial := func(ctx context.Context, before int) (*memorySession, error) {
		if before > 0 { // until it is up again
			time.Sleep(time.Hour)
		}
		return &memorySession{probe: hangs}, nil
	}
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		time.Sleep(31 * time.Second) // the Probe is in flight
		_, sessions := w.dialled()
		sessions[0].goAway()
		synctest.Wait()
		w.checkState("then", status.StateLost, "ended")
		w.attachment("v")
		time.Sleep(time.Minute)
		if reads, calls := w.secretReads(), len(sessions[0].calls()); reads > 0 || calls > 0 {
			t.Errorf("%d reads of the secret and %d calls while the driver was away, want none", reads, calls)
		}
	})
}

// Until the hub knows that a driver has gone, each try fails at once and counts as none.
func TestWorkThatCannotSucceedNowIsNotRepeatedWithoutAPause(t *testing.T) {
	dial := func(context.Context, int) (*memorySession, error) { return &memorySession{toldLate: true}, nil }
	inMemory(t, dial, func(t *testing.T, w *memoryWorld) {
		w.attachment("v")
		time.Sleep(20 * time.Second)
		w.checkState("meanwhile", status.StateReady, "")
		if reads := w.secretReads(); reads < 2 || reads > 40 {
			t.Errorf("%d reads of the secret in 20 seconds, want a few", reads)
		}
	})
}

// A process that stops gracefully tells its clients to go away, and answers what it has taken.
func TestADriverThatStopsWhileAProbeIsInFlightIsConnectedToAgain(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.set(driver, func(s *registry.Settings) {
		s.Probe = registry.Probe{Interval: 10 * time.Millisecond}
	})
	va := w.volume("v", driver, w.node("n", driver))
	before := w.volume("before", driver, va.Node)
	w.start()
	w.create(before)
	w.waitForOne(before.Name, "attached", isAttached)
	w.turn(backend, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.Probe}}})
	w.waitBooks(backend, "a Probe hangs", func(b fakecsi.Books) bool {
		return b.Methods[fakecsi.Probe].Begun > b.Methods[fakecsi.Probe].Ended
	})
	w.servers[driver].Stop(w.ctx) // returns when that Probe has ended: its caller goes away
	w.turn(backend, fakecsi.Knobs{ReleaseAll: true})
	if err := w.servers[driver].Start(); err != nil {
		t.Fatal(err)
	}
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.checkBooks(map[string]int{driver: 2})
}
