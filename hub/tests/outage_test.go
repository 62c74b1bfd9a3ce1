package tests

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/proxy"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestAPIServerThatStopsInTheMiddleOfAttachesLosesAndDoublesNone(t *testing.T) {
	const n = 200
	notShort(t)
	plane := testbed.OwnControlPlane(t, testbed.ControlPlaneOptions{})
	w := newWorldOn(t, plane)
	var sessions []hubdriver.Session
	w.options.Connect = func(ctx context.Context, d registry.Driver) (hubdriver.Session, error) {
		s, err := csiclient.Connect(ctx, d, nil)
		if err == nil {
			sessions = append(sessions, s)
		}
		return s, err
	}
	driver, backend := w.driver("d", fakecsi.Options{})
	w.setKnobs(backend, fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{publish: {Base: 100 * time.Millisecond}}})
	nodes := []string{w.node("n0", driver), w.node("n1", driver), w.node("n2", driver), w.node("n3", driver)}
	var volumes, vas []testbed.Object
	for i := range n {
		name := w.name(fmt.Sprintf("v%d", i))
		volumes = append(volumes, testbed.PersistentVolume{Name: name, Driver: driver})
		vas = append(vas, testbed.VolumeAttachment{Name: name, Driver: driver, Node: nodes[i%len(nodes)], PersistentVolume: name})
	}
	w.create(volumes...)
	w.create(vas...)
	stop := w.start()
	w.waitBooks(backend, "half of the volumes are attached", func(b fakecsi.Books) bool { return len(b.Attached) >= n/2 })
	plane.Kill()
	if err := plane.StartAgain(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.waitAllAttached(n)
	w.checkBooks(map[string]int{driver: n})
	published := map[string]int{}
	for _, call := range backend.Books().CallsOf(publish, "") {
		if published[call.Volume]++; published[call.Volume] > 1 { // it succeeded, and only the status could not be written
			t.Errorf("%s was published again", call.Volume)
		}
	}
	ours := []string{"/hub.", "/hub/attach.", "/hub/csiclient."}
	if len(goroutinesOf(ours...)) == 0 {
		t.Error("no goroutine of the running hub is seen, so none that is left behind would be")
	}
	stop()
	for _, s := range sessions {
		<-s.Ended().Done()
	}
	left := goroutinesOf(ours...)
	for len(left) > 0 && w.ctx.Err() == nil { // what has said that it is done is about to end
		runtime.Gosched()
		left = goroutinesOf(ours...)
	}
	if len(left) > 0 {
		t.Errorf("%d goroutines are left behind:\n%s", len(left), strings.Join(left, "\n\n"))
	}
}

// goroutinesOf returns the stacks in which a package of this repository occurs.
func goroutinesOf(packages ...string) []string {
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return []string{err.Error()}
	}
	var names []string
	for _, p := range packages {
		names = append(names, regexp.QuoteMeta("csi-attach-hub"+p))
	}
	ours := regexp.MustCompile(strings.Join(names, "|"))
	var left []string
	for stack := range strings.SplitSeq(text.String(), "\n\n") {
		if ours.MatchString(stack) {
			left = append(left, stack)
		}
	}
	return left
}

// proxied puts a proxy with mutual TLS before a driver, and has the hub go through it.
func (w *world) proxied(driver string) {
	w.t.Helper()
	const serverName = "driver.storage.svc"
	proxyCA, hubCA := certtest.NewAuthority(w.t, "proxy CA"), certtest.NewAuthority(w.t, "hub CA")
	own := certtest.Write(w.t, w.t.TempDir(), hubCA, proxyCA.Issue(certtest.Request{Names: []string{serverName}}))
	d := w.drivers[driver]
	p, err := proxy.New(proxy.Options{Target: d.Endpoint.Address(), Files: tlsfiles.Files(own), AllowedSANs: []string{"hub"}})
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Serve(ctx, listener) }()
	w.t.Cleanup(func() { stop(); <-ended })
	f := certtest.Write(w.t, w.t.TempDir(), proxyCA, hubCA.Issue(certtest.Request{Names: []string{"hub"}}))
	d.Endpoint = registry.Endpoint("tcp://" + listener.Addr().String())
	d.TLS = registry.TLS{CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: serverName}
	w.drivers[driver] = d
}

// The same test for a driver on its socket and for one behind a proxy: to the hub there
// is no difference.
func TestDriverThatGoesAndComesBackLosesNothingOnItsSocketAndBehindAProxy(t *testing.T) {
	for name, reach := range map[string]func(*world, string){"socket": func(*world, string) {}, "proxy": (*world).proxied} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			driver, backend := w.driver("d-"+name, fakecsi.Options{})
			reach(w, driver)
			node := w.node("n", driver)
			var first, second []testbed.Object
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				first = append(first, w.volume(name, driver, node))
				second = append(second, w.volume(name+"2", driver, node))
			}
			w.start()
			w.create(first...)
			w.waitAllAttached(len(first))
			w.servers[driver].Crash()
			w.create(second...)
			w.delete(first...)
			w.restart(w.servers[driver])
			w.waitFor("the second half attached, the first gone", testbed.AllAttached(len(second)))
			w.checkBooks(map[string]int{driver: len(second)})
			w.delete(second...)
			w.waitNoneLeft()
			w.checkBooks(nil)
			if got := backend.Books().Methods[publish].Changed; got != 10 {
				t.Errorf("%d publishes changed something, want 10", got)
			}
		})
	}
}

// silent has the driver answer no Probe over the first connection, and calls of a publish by f; another process that comes after it
// is well.
func (v *virtual) silent(f func(ctx context.Context, call func(context.Context) error) error) {
	v.connect = func(_ context.Context, before int, s *backendSession) error {
		s.around = func(ctx context.Context, c sessionCall, call func(context.Context) error) error {
			switch {
			case before > 0:
				return call(ctx)
			case c.method == fakecsi.Probe:
				return hangs(ctx)
			case c.method == publish && f != nil:
				return f(ctx, call)
			}
			return call(ctx)
		}
		return nil
	}
}

// hangs is a call that is never answered.
func hangs(ctx context.Context) error {
	<-ctx.Done()
	return grpcstatus.FromContextError(ctx.Err()).Err()
}

// wantSecondConnection checks that there is a second connection in the place of the first.
func (v *virtual) wantSecondConnection() {
	v.t.Helper()
	if n, all := v.dialled(); n != 2 || len(all) != 2 || all[0].ended.Err() == nil {
		v.t.Errorf("dialled %d times, %d connections, want a second one in the place of the first", n, len(all))
	}
}

func TestADriverThatAnswersNothingIsDialledAnew(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.silent(nil)
		v.withNode("v")
		v.start()
		v.pass(time.Second)
		v.wantState("at first", status.StateReady, "")
		v.pass(5 * time.Minute)
		v.attach("v")
		v.pass(time.Minute)
		v.wantState("later", status.StateReady, "")
		v.wantSecondConnection()
		v.wantAttached("v-n")
	})
}

func TestCallsInFlightSurviveADialAnew(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.options.Grace = time.Minute
		v.driver.Timeout, v.driver.StuckAfter = 24*time.Hour, 24*time.Hour
		v.silent(func(ctx context.Context, call func(context.Context) error) error { return call(ctx) })
		v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "long"}, {Volume: "longer"}}})
		v.withNode("long", "longer", "later")
		stop := v.start()
		v.attach("long", "longer")
		v.pass(time.Hour)
		v.attach("later")
		v.wantSecondConnection()
		v.wantAttached("later-n")
		v.setKnobs(fakecsi.Knobs{Release: []fakecsi.Hang{{Volume: "long"}}})
		v.pass(time.Second)
		v.wantAttached("long-n")
		if n := v.begun(publish); n != 3 {
			t.Errorf("%d calls, want one for each", n)
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took != time.Minute || v.backend.Books().AttachInFlight.Now > 0 {
			t.Errorf("the hub has ended after %v, want the grace of 1m, in which the last call could have ended", took)
		}
		if got := v.get("longer-n"); !hasOwnFinalizer(got, virtualDriver) || got.Status.AttachError != nil {
			t.Errorf("%+v: want the finalizer to stay, and no error for what was only cut", got)
		}
	})
}

// A driver that warms up, say: the process is alive, and a call that it has taken may succeed.
func TestADriverThatIsNotReadyForLongKeepsItsConnection(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Timeout = 24 * time.Hour
		v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "v"}}})
		v.withNode("v", "waits")
		v.start()
		v.attach("v")
		notReady := true
		v.setKnobs(fakecsi.Knobs{NotReady: &notReady})
		v.pass(time.Minute)
		v.attach("waits")
		for range 60 {
			v.pass(time.Minute)
			v.wantState("meanwhile", status.StateProbing, "not ready")
		}
		v.wantCalls("waits")
		v.setKnobs(fakecsi.Knobs{NotReady: new(bool), ReleaseAll: true})
		v.pass(2 * time.Minute)
		v.wantState("in the end", status.StateReady, "")
		v.wantAttached("v-n", "waits-n")
		if v.connections() != 1 || v.begun(publish) != 2 {
			t.Errorf("%d connections and %d calls, want one connection: it answers", v.connections(), v.begun(publish))
		}
	})
}

func TestDriverWhoseProbeHangsIsNotReady(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.pass(time.Second)
		v.setKnobs(hanging(fakecsi.Probe))
		v.pass(53 * time.Second) // an interval, and two Probes with their time limits
		v.wantState("while a Probe hangs", status.StateProbing, "")
		v.setKnobs(healed)
		v.pass(30 * time.Second)
		v.wantState("when Probes are answered again", status.StateReady, "")
	})
}

func TestAnAnswerToACallKeepsAConnectionWhoseProbesHang(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Timeout = time.Hour
		v.withNode("v")
		v.start()
		v.pass(time.Second)
		v.setKnobs(hanging(fakecsi.Probe))
		v.setKnobs(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{publish: {Base: 50 * time.Second}}}) // until the second Probe hangs
		v.create(v.attachment("v", "n"))
		v.pass(80 * time.Second)
		v.wantAttached("v-n")
		if v.connections() != 1 {
			t.Errorf("dialled %d times", v.connections())
		}
		v.pass(time.Minute)
		if v.connections() < 2 {
			t.Error("the driver was not dialled anew when it had answered nothing for 30 s")
		}
		v.setKnobs(healed)
	})
}

// The process does one thing at a time, so that neither a Probe nor a new connection is answered during a call that takes long.
func TestVolumeWhoseCallsSilenceTheDriverKeepsItsBackoff(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Timeout, v.driver.Retry = time.Hour, registry.Retry{Initial: time.Hour, Max: time.Hour}
		var busy atomic.Bool
		v.connect = func(ctx context.Context, _ int, s *backendSession) error {
			s.around = func(ctx context.Context, c sessionCall, call func(context.Context) error) error {
				if c.method == publish {
					busy.Store(true)
					defer busy.Store(false)
				} else if busy.Load() {
					return hangs(ctx)
				}
				return call(ctx)
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return s.Probe(ctx)
		}
		v.setKnobs(failing(publish, codes.Internal))
		v.setKnobs(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{publish: {Base: 2 * time.Minute}}})
		v.withNode("v")
		v.start()
		v.attach("v")
		v.pass(12 * time.Hour)
		if n := v.begun(publish); n < 8 || n > 20 {
			t.Errorf("%d calls in 12 hours for a volume that is tried once an hour", n)
		}
	})
}

func TestTheEndOfAConnectionIsSeenWhileAProbeIsInFlight(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.silent(nil)
		v.create(testbed.Secret{Name: "first"})
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")})
		v.start()
		v.pass(31 * time.Second) // the Probe is in flight
		v.cut()
		v.pass(0)
		v.wantState("then", status.StateLost, "ended")
		v.attach("v")
		v.pass(time.Minute)
		if reads, calls := v.api.Count("get", "secrets"), v.begun(publish); reads > 0 || calls > 0 {
			t.Errorf("%d reads of the secret and %d calls while the driver was away, want none", reads, calls)
		}
	})
}

// Until the hub knows that a driver has gone, each try fails at once and counts as none.
func TestWorkThatCannotSucceedNowIsNotRepeatedWithoutAPause(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.connect = func(_ context.Context, _ int, s *backendSession) error {
			s.late.Store(true)
			s.end()
			return nil
		}
		v.create(testbed.Secret{Name: "first"})
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")})
		v.start()
		v.attach("v")
		v.pass(20 * time.Second)
		v.wantState("meanwhile", status.StateReady, "")
		if reads := v.api.Count("get", "secrets"); reads < 2 || reads > 40 {
			t.Errorf("%d reads of the secret in 20 seconds, want a few", reads)
		}
	})
}

// fatalTo has the process of the driver end at some calls, and with it all calls in flight. It comes back after a
// time. ends counts how often.
func (v *virtual) fatalTo(back time.Duration, calls func(sessionCall) bool) (ends *atomic.Int32) {
	ends = new(atomic.Int32)
	v.connect = func(ctx context.Context, _ int, s *backendSession) error {
		if ends.Load() > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(back):
			}
		}
		broken, crash := context.WithCancel(context.Background())
		s.around = func(ctx context.Context, c sessionCall, call func(context.Context) error) error {
			if calls(c) && broken.Err() == nil {
				ends.Add(1)
				crash()
				s.end()
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(broken, cancel)()
			err := error(nil)
			if broken.Err() == nil {
				err = call(ctx)
			}
			if broken.Err() != nil {
				return errGone
			}
			return err
		}
		return nil
	}
	return ends
}

// Each new connection ended the backoff of the volume: the driver was ended 1,800 times an hour, and no other attach had the
// time that it takes.
func TestVolumeWhosePublishEndsTheDriverDoesNotKeepOthersFromBeingAttached(t *testing.T) {
	eachInVirtualTime(t, map[string]time.Duration{"restarted at once": 0, "restarted after 5m, as a container that crashes often": 5 * time.Minute}, func(v *virtual, back time.Duration) {
		v.driver.Drift.Interval = 0
		ends := v.fatalTo(back, func(c sessionCall) bool { return c.method == publish && c.volume == "bad" })
		v.setKnobs(fakecsi.AttachLatency(fakecsi.Latency{Base: 5 * time.Second})) // of all other volumes
		v.withNode("bad")
		v.start()
		v.attach("bad")
		v.pass(10 * time.Minute)
		others := v.many("v", 4)
		before := ends.Load()
		v.pass(3 * time.Hour)
		if n := ends.Load() - before; n < 10 || n > 3*75 {
			v.t.Errorf("one volume ended the driver %d times in three hours, want a try about each minute (retry.max)", n)
		}
		for _, va := range others {
			v.wantAttached(va.Name)
		}
	})
}

func TestDanglingVolumeWhoseUnpublishEndsTheDriverKeepsItsBackoff(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = 0
		ends := v.fatalTo(0, func(c sessionCall) bool { return c.method == unpublish })
		v.start()
		v.vanish(v.attached())
		v.pass(10 * time.Minute)
		before := ends.Load()
		v.pass(time.Hour)
		if n := ends.Load() - before; n < 10 || n > 75 {
			t.Errorf("one detach ended the driver %d times in an hour, want a try about each minute (retry.max)", n)
		}
	})
}

// The driver is away for longer than its lease lasts: each time the lease is released, and taken again.
func TestVolumeThatEndsTheDriverKeepsItsBackoffInTheNextTerm(t *testing.T) {
	race.Skip(t, race.Hours)
	inVirtualTime(t, func(v *virtual) {
		v.driver.Drift.Interval = 0
		v.leased()
		ends := v.fatalTo(0, func(c sessionCall) bool { return c.method == publish })
		v.withNode("bad")
		v.start()
		v.attach("bad")
		v.pass(10 * time.Minute)
		before := ends.Load()
		for range 60 { // a pause ends the term
			v.mode(registry.ModePaused)
			v.pass(time.Second)
			v.mode(registry.ModeActive)
			v.pass(time.Second)
		}
		if n := ends.Load() - before; n > 4 {
			t.Errorf("the volume ended the driver %d times in two minutes with a new term each two seconds, want a try each minute", n)
		}
	})
}

// The listing was repeated after each drift.interval (1m), whatever it did to the driver: no attach that takes longer ever ended.
func TestListingThatEndsTheDriverIsRepeatedLessAndLess(t *testing.T) {
	race.Skip(t, race.Hours)
	inVirtualTime(t, func(v *virtual) {
		var well atomic.Bool
		ends := v.fatalTo(0, func(c sessionCall) bool { return c.method == fakecsi.ListVolumes && !well.Load() })
		v.setKnobs(fakecsi.AttachLatency(fakecsi.Latency{Base: 20 * time.Minute}))
		v.driver.Timeout = time.Hour
		v.withNode("v")
		v.start()
		v.attach("v")
		v.pass(24 * time.Hour)
		v.wantAttached("v-n") // each listing cut off the attach
		if n := ends.Load(); n < 24 || n > 32 {
			t.Errorf("%d listings in a day that all fail, want one each hour after 1m, 2m, 4m ...", n)
		}
		well.Store(true)
		v.pass(2 * time.Hour)
		before := v.ended(fakecsi.ListVolumes)
		v.pass(time.Hour)
		if n := v.ended(fakecsi.ListVolumes) - before; n < 59 {
			t.Errorf("%d listings in an hour, want one each minute again", n)
		}
	})
}
