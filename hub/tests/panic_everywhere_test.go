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

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

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

// bombSession passes its calls by a bomb.
type bombSession struct {
	*backendSession
	*bomb
}

func (s bombSession) Probe(ctx context.Context) error {
	s.pass("probe")
	return s.backendSession.Probe(ctx)
}

func (s bombSession) ListVolumes(ctx context.Context, pageSize int) (csiclient.Published, time.Duration, error) {
	s.pass("list")
	return s.backendSession.ListVolumes(ctx, pageSize)
}

func (s bombSession) ControllerPublishVolume(ctx context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	s.pass("publish " + r.VolumeId)
	return s.backendSession.ControllerPublishVolume(ctx, r)
}

func (s bombSession) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	s.pass("unpublish " + r.VolumeId)
	return s.backendSession.ControllerUnpublishVolume(ctx, r)
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
	kube := v.kube
	v.kube = kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://fakekube", Transport: bombTransport{v.api, b}, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
	v.leased()
	v.options.Kube, v.kube = v.kube, kube
	v.options.Leases = bombLeases{v.options.Leases, b}
	v.options.Events = bombRecorder{v.events, b}
	v.options.Connect = func(_ context.Context, d registry.Driver) (hubdriver.Session, error) {
		if d.Name == otherDriver {
			dials.Add(1)
			return newBackendSession(other), nil
		}
		b.pass("connect")
		return bombSession{newBackendSession(v.backend), b}, nil
	}
	h, err := hub.New(v.options)
	if err != nil {
		v.t.Fatal(err)
	}
	v.hub = h
	sink := funcr.New(func(_, args string) {
		if strings.Contains(args, `"driver"="`+virtualDriver) {
			_, message, _ := strings.Cut(args, `"msg"="`)
			b.pass("log " + message)
		}
	}, funcr.Options{Verbosity: 4})
	ctx, cancel := context.WithCancel(klog.NewContext(v.t.Context(), logr.Logger(sink)))
	updates := make(chan registry.Snapshot, 1)
	v.updates = updates
	v.serveBoth()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.Run(ctx, updates); err != nil {
			v.t.Errorf("the hub ended with %v", err)
		}
	}()
	v.t.Cleanup(func() { cancel(); <-ended })
	return b, dials
}

// serveBoth has the hub serve both drivers.
func (v *virtual) serveBoth() {
	other := v.driver
	other.Name, other.Mode = otherDriver, registry.ModeActive
	v.updates <- registry.Snapshot{virtualDriver: v.driver, otherDriver: other}
}

// In each row another goroutine of one driver panics.
func TestPanicInAnyGoroutineOfADriverRestartsThatDriverAlone(t *testing.T) {
	pause := func(v *virtual) {
		v.driver.Mode = registry.ModePaused
		v.serveBoth()
		v.pass(time.Second)
		v.driver.Mode = registry.ModeActive
		v.serveBoth()
	}
	observe := func(v *virtual) {
		v.driver.Mode = registry.ModeObserve
		v.serveBoth()
		v.pass(5 * time.Second)
		v.driver.Mode = registry.ModeActive
		v.serveBoth()
	}
	logOf := func(state, mode string) string {
		return fmt.Sprintf(`log Driver state" "driver"=%q "state"=%q "mode"=%q`, virtualDriver, state, mode)
	}
	odd := func(v *virtual) {
		v.volume("odd")
		v.create(v.attachment("odd", "n"))
	}
	for name, c := range map[string]struct {
		at     string
		happen func(v *virtual)
	}{
		"the manager takes a role":           {logOf("Paused", "paused"), pause},
		"the manager observes":               {logOf("Ready", "observe"), observe},
		"the manager competes for the lease": {"hold", nil},
		"the manager has acquired the lease": {"log Lease acquired", nil},
		"the leader ends":                    {logOf("Draining", "active"), pause},
		"the connection is made":             {"connect", nil},
		"the connection is taken into use":   {logOf("WaitingForLease", "active"), nil},
		"the leader begins":                  {logOf("Ready", "active"), nil},
		"a Probe":                            {"probe", nil},
		"a worker publishes":                 {"publish odd", odd},
		"a worker adds finalizers":           {"PATCH /api/v1/persistentvolumes/odd", odd},
		"a worker adds the other finalizer":  {"PATCH /apis/storage.k8s.io/v1/volumeattachments/odd-n", odd},
		"a worker unpublishes": {"unpublish odd", func(v *virtual) {
			odd(v)
			v.pass(time.Second)
			v.delete(v.attachment("odd", "n"))
			v.pass(time.Minute)
			v.create(v.attachment("odd", "n"))
		}},
		"the lease is renewed":   {"PUT /apis/coordination.k8s.io/v1/namespaces/hub/leases/external-attacher-leader-" + strings.ReplaceAll(virtualDriver, ".", "-"), nil},
		"the volumes are listed": {"list", nil},
		"what is stuck is looked for": {"event AttachStuck", func(v *virtual) {
			v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Volume: "odd", Code: 13, Count: 8}}})
			odd(v)
		}},
		"calls that hang are looked for": {"log ControllerPublishVolume unanswered", func(v *virtual) {
			v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Volume: "odd"}}})
			odd(v)
			v.pass(90 * time.Second)
			v.turn(fakecsi.Knobs{ReleaseAll: true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Probe.Interval = 10 * time.Second
				v.driver.StuckAfter = 30 * time.Second
				v.create(testbed.Node{Name: "n"}, testbed.CSINode{Node: "n", Drivers: map[string]string{virtualDriver: "id-n", otherDriver: "id-n"}})
				after := int32(1)
				if strings.HasPrefix(c.at, "PUT") {
					after = 3 // the first two may take the lease
				}
				b, dials := v.withBomb(c.at, after)
				v.pass(5 * time.Second)
				if c.happen != nil {
					c.happen(v)
				}
				v.pass(2 * time.Minute)
				if b.left.Load() > 0 {
					t.Fatal("nothing has panicked")
				}
				v.volume("v")
				v.create(testbed.PersistentVolume{Name: "o", Driver: otherDriver, Handle: "o", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}})
				v.create(v.attachment("v", "n"), testbed.VolumeAttachment{Name: "o-n", Driver: otherDriver, Node: "n", PersistentVolume: "o"})
				v.pass(5 * time.Minute)
				for _, name := range []string{"v-n", "o-n"} {
					if got := v.get(name); !got.Status.Attached {
						t.Errorf("%s is not attached: %+v", name, got.Status)
					}
				}
				if odd := v.get("odd-n"); odd != nil && !odd.Status.Attached {
					t.Errorf("the volume during whose operation there was a panic is not attached: %+v", odd.Status)
				}
				if n := dials.Load(); n != 1 {
					t.Errorf("the other driver was connected to %d times, want once", n)
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
	"hub/driver/connection.go use":       "a cancel function",
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
