package tests

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventrecord "k8s.io/client-go/tools/record"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestHangingDriverDoesNotDelayOthers(t *testing.T) {
	const each = 25 // more than the hub attaches at once for one driver
	w := newWorld(t)
	attachments := w.many(each)
	hanging := slices.Sorted(maps.Keys(w.drivers))[0]
	w.setKnobs(w.backend[hanging], fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: publish}}})
	w.set(hanging, func(s *registry.Settings) { s.Timeout = time.Hour })
	w.start()
	w.create(attachments...)
	w.waitFor("all volumes of the other drivers attached", func(all []*storagev1.VolumeAttachment) bool {
		all = slices.DeleteFunc(all, func(va *storagev1.VolumeAttachment) bool { return !va.Status.Attached || va.Spec.Attacher == hanging })
		return len(all) == (manyDrivers-1)*each
	})
	w.waitBooks(w.backend[hanging], "the hanging driver has a call", func(b fakecsi.Books) bool { return b.AttachInFlight.Now > 0 })
	if got := w.backend[hanging].Books().Attached; len(got) != 0 {
		t.Errorf("the hanging driver has %d volumes attached, want it to hang", len(got))
	}
	w.setKnobs(w.backend[hanging], healed)
	w.waitAllAttached(manyDrivers * each)
	w.delete(attachments...)
	w.waitNoneLeft()
	w.checkBooks(nil)
}

const manyDrivers = 10

// many makes ten drivers with so many volumes each, spread over five nodes, and
// returns what attaches them.
func (w *world) many(each int) []testbed.Object {
	var drivers, nodes []string
	for i := range manyDrivers {
		name, backend := w.driver(fmt.Sprintf("d%d", i), fakecsi.Options{})
		w.setKnobs(backend, fakecsi.AttachLatency(fakecsi.Latency{Base: 20 * time.Millisecond}))
		drivers = append(drivers, name)
	}
	for i := range 5 {
		nodes = append(nodes, w.node(fmt.Sprintf("n%d", i), drivers...))
	}
	var volumes, attachments []testbed.Object
	for i, driver := range drivers {
		for j := range each {
			name := w.name(fmt.Sprintf("d%d-v%d", i, j))
			volumes = append(volumes, testbed.PersistentVolume{Name: name, Driver: driver, Handle: fmt.Sprintf("v%d", j)})
			attachments = append(attachments, testbed.VolumeAttachment{Name: name, Driver: driver, Node: nodes[j%len(nodes)], PersistentVolume: name})
		}
	}
	w.create(volumes...)
	return attachments
}

func (w *world) eachHas(n int) map[string]int {
	want := map[string]int{}
	for name := range w.drivers {
		want[name] = n
	}
	return want
}

// Attaches and detaches each have half of the workers; what one side leaves idle is lent to short calls, all but one.
func TestAttachesThatHangLeaveWorkersToDetaches(t *testing.T) {
	type row struct{ warm, want int }
	eachInVirtualTime(t, map[string]row{"no call has ended so far": {0, 4}, "the calls were short so far": {10, 7}}, func(v *virtual, c row) {
		v.driver.Workers, v.driver.Timeout = 8, 24*time.Hour
		v.register("n", "id-n")
		stop := v.start()
		leaving := v.many("leaving", 10)
		v.pass(time.Minute)
		stop()
		v.start() // it remembers no call
		v.pass(time.Second)
		v.many("warm", c.warm)
		v.pass(time.Minute)
		v.setKnobs(hanging(publish))
		v.many("hanging", 20)
		v.pass(time.Minute)
		if n := v.backend.Books().AttachInFlight.Now; n != c.want {
			v.t.Errorf("%d attaches in flight, want %d of 8 workers", n, c.want)
		}
		v.deleteAll(leaving)
		v.pass(time.Second)
		for _, va := range leaving {
			v.wantGone(va.Name)
		}
		v.setKnobs(healed)
	})
}

// A driver that has come back gets an eighth of its workers at first, and twice as many each second.
func TestDriverThatComesBackGetsItsCallsByAndBy(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Workers, v.driver.Timeout = 32, 24*time.Hour
		v.register("n", "id-n")
		v.start()
		v.pass(time.Second)
		v.setKnobs(hanging(publish))
		v.cut()
		v.many("v", 50)
		v.pass(time.Minute)
		v.mend()
		for v.backend.Books().AttachInFlight.Now == 0 {
			v.pass(10 * time.Millisecond)
		}
		for _, want := range []int{2, 4, 8, 16, 16} { // attaches have half
			if n := v.backend.Books().AttachInFlight.Now; n != want {
				t.Errorf("%d attaches in flight, want %d", n, want)
			}
			v.pass(time.Second)
		}
		v.setKnobs(healed)
	})
}

// bomb panics once at one of many places in the work for virtualDriver.
type bomb struct {
	at   string
	left atomic.Int32
}

func (b *bomb) pass(place string) {
	if b.at != "" && strings.HasPrefix(place, b.at) && b.left.Add(-1) == 0 {
		panic("odd answer")
	}
}

// bombLeases passes a bomb before each candidacy.
type bombLeases struct {
	hubdriver.Leases
	*bomb
}

func (l bombLeases) Hold(ctx context.Context, c lease.Candidacy) error {
	if c.Driver == virtualDriver {
		l.pass("hold")
	}
	return l.Leases.Hold(ctx, c)
}

// bombTransport passes its requests by a bomb.
type bombTransport struct {
	http.RoundTripper
	*bomb
}

func (b bombTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	b.pass(r.Method + " " + r.URL.Path)
	return b.RoundTripper.RoundTrip(r)
}

// bombRecorder passes its Events by a bomb.
type bombRecorder struct {
	eventrecord.EventRecorder
	*bomb
}

func (r bombRecorder) Event(object runtime.Object, eventtype, reason, message string) {
	r.pass("event " + reason)
	r.EventRecorder.Event(object, eventtype, reason, message)
}

// otherDriver is a driver that nothing happens to.
const otherDriver = "other.example.com"

// withBomb starts a hub for two drivers, whose work for one passes a bomb at a place. dials counts the connections to the other one.
func (v *virtual) withBomb(at string, after int32) (b *bomb, dials *atomic.Int32) {
	v.t.Helper()
	b = &bomb{at: at}
	b.left.Store(after)
	dials = new(atomic.Int32)
	other, err := fakecsi.New(fakecsi.Options{Name: otherDriver})
	if err != nil {
		v.t.Fatal(err)
	}
	v.options.Kube = v.through(bombTransport{v.api, b})
	v.leased()
	v.options.Leases, v.options.Events = bombLeases{v.options.Leases, b}, bombRecorder{v.events, b}
	v.connect = func(_ context.Context, _ int, s *backendSession) error {
		b.pass("connect")
		s.around = func(ctx context.Context, c sessionCall, call func(context.Context) error) error {
			b.pass(strings.TrimSpace(string(c.method) + " " + c.volume))
			return call(ctx)
		}
		return nil
	}
	v.options.Connect = func(ctx context.Context, d registry.Driver) (hubdriver.Session, error) {
		if d.Name == otherDriver {
			dials.Add(1)
			return newBackendSession(other), nil
		}
		return v.dial(ctx, d)
	}
	v.startLogging(logr.Logger(funcr.New(func(_, args string) {
		if strings.Contains(args, `"driver"="`+virtualDriver) {
			_, message, _ := strings.Cut(args, `"msg"="`)
			b.pass("log " + message)
		}
	}, funcr.Options{Verbosity: 4})))
	return b, dials
}

// serveBoth has the hub serve both drivers, this one in a mode.
func (v *virtual) serveBoth(m registry.Mode) {
	other := v.driver
	other.Name, other.Mode = otherDriver, registry.ModeActive
	v.driver.Mode = m
	v.updates <- registry.Snapshot{virtualDriver: v.driver, otherDriver: other}
}

// In each row another goroutine of one driver panics.
func TestPanicInAnyGoroutineOfADriverRestartsThatDriverAlone(t *testing.T) {
	inMode := func(m registry.Mode) func(v *virtual) {
		return func(v *virtual) {
			v.serveBoth(m)
			v.pass(5 * time.Second)
			v.serveBoth(registry.ModeActive)
		}
	}
	pause, observe := inMode(registry.ModePaused), inMode(registry.ModeObserve)
	logOf := func(state, mode string) string {
		return fmt.Sprintf(`log Driver state" "driver"=%q "state"=%q "mode"=%q`, virtualDriver, state, mode)
	}
	odd := func(v *virtual) {
		v.volume("odd")
		v.create(v.attachment("odd", "n"))
	}
	type row struct {
		at     string
		happen func(v *virtual)
		after  int32 // passes without a panic
	}
	for name, c := range map[string]row{ // each panics in another goroutine, so the race detector watches all
		"the manager takes a role":           {at: logOf("Paused", "paused"), happen: pause},
		"the manager observes":               {at: logOf("Ready", "observe"), happen: observe},
		"the manager competes for the lease": {at: "hold"},
		"the manager has acquired the lease": {at: "log Lease acquired"},
		"the leader ends":                    {at: logOf("Draining", "active"), happen: pause},
		"the connection is made":             {at: "connect"},
		"the driver is dialled anew":         {"connect", func(v *virtual) { v.setKnobs(hanging(fakecsi.Probe)); v.pass(90 * time.Second); v.setKnobs(healed) }, 1},
		"the connection is taken into use":   {at: logOf("WaitingForLease", "active")},
		"the leader begins":                  {at: logOf("Ready", "active")},
		"a Probe":                            {at: "Probe"},
		"a worker publishes":                 {at: "ControllerPublishVolume odd", happen: odd},
		"a worker adds finalizers":           {at: "PATCH /api/v1/persistentvolumes/odd", happen: odd},
		"a worker adds the other finalizer":  {at: "PATCH /apis/storage.k8s.io/v1/volumeattachments/odd-n", happen: odd},
		"a worker unpublishes": {at: "ControllerUnpublishVolume odd", happen: func(v *virtual) {
			odd(v)
			v.pass(time.Second)
			v.delete(v.attachment("odd", "n"))
			v.pass(time.Minute)
			v.create(v.attachment("odd", "n"))
		}},
		"the lease is renewed":   {at: "PUT /apis/coordination.k8s.io/v1/namespaces/hub/leases/external-attacher-leader-" + strings.ReplaceAll(virtualDriver, ".", "-"), after: 2},
		"the volumes are listed": {at: "ListVolumes"},
		"what is stuck is looked for": {at: "event AttachStuck", happen: func(v *virtual) {
			v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Volume: "odd", Code: codes.Internal, Count: 8}}})
			odd(v)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Probe.Interval = 10 * time.Second
				v.driver.StuckAfter = 30 * time.Second
				v.create(testbed.Node{Name: "n"}, testbed.CSINode{Node: "n", Drivers: map[string]string{virtualDriver: "id-n", otherDriver: "id-n"}})
				b, dials := v.withBomb(c.at, c.after+1)
				v.serveBoth(registry.ModeActive)
				v.pass(5 * time.Second)
				if c.happen != nil {
					c.happen(v)
				}
				v.pass(2 * time.Minute)
				if b.left.Load() > 0 {
					v.t.Fatal("nothing has panicked")
				}
				v.volume("v")
				v.create(testbed.PersistentVolume{Name: "o", Driver: otherDriver})
				v.create(v.attachment("v", "n"), testbed.VolumeAttachment{Name: "o-n", Driver: otherDriver, Node: "n", PersistentVolume: "o"})
				v.pass(time.Minute)
				v.wantAttached("v-n", "o-n")
				if v.get("odd-n") != nil { // during whose operation there was a panic
					v.wantAttached("odd-n")
				}
				if n := dials.Load(); n != 1 {
					v.t.Errorf("the other driver was connected to %d times, want once", n)
				}
			})
		})
	}
}

// goroutines are those that panics.Go does not start, by file and function, with the reason why a panic in them is contained or
// cannot be.
var goroutines = map[string]string{
	"hub/reconcile/drain.go sideBySide":  "panics.Contain inside",
	"hub/driver/lifecycle.go run":        "a cancel function",
	"hub/driver/live_session.go use":     "a cancel function",
	"hub/csiclient/session.go follow":    "panics.Contain itself",
	"hub/lease/candidate.go Hold":        "only notifies",
	"hub/lease/watcher.go updateWatches": "panics.Catch inside",
	"hub/hub.go Run":                     "a cancel function of all drivers",
	"hub/lease/leases.go Run":            "of all drivers",
	"hub/cache/cluster.go":               "of all drivers",
}

// A goroutine that is started in another way than by panics.Go could end the process by a panic.
func TestGoroutinesOfADriverAreStartedByPanicsGo(t *testing.T) {
	seen := map[string]bool{}
	for _, folder := range []string{".", "driver", "reconcile", "observe", "attach", "volume", "queue", "drift", "lease", "csiclient", "cache"} {
		files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, declared := range parsed.Decls {
				function, ok := declared.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if name := filepath.Join("hub", "tests", file); startsGoroutine(function) {
					_, whole := goroutines[name]
					_, one := goroutines[name+" "+function.Name.Name]
					if !whole && !one {
						t.Errorf("%s starts a goroutine in %s otherwise than by panics.Go", name, function.Name.Name)
					}
					seen[name], seen[name+" "+function.Name.Name] = true, true
				}
			}
		}
	}
	for _, known := range slices.Sorted(maps.Keys(goroutines)) {
		if !seen[known] {
			t.Errorf("%s starts no goroutine any more", known)
		}
	}
}

// startsGoroutine reports whether a function starts a goroutine otherwise than by panics.Go.
func startsGoroutine(f *ast.FuncDecl) (starts bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && (called.Sel.Name == "Go" || called.Sel.Name == "AfterFunc") {
				of, ok := called.X.(*ast.Ident)
				starts = starts || !ok || of.Name != "panics"
			}
		}
		return true
	})
	return starts
}
