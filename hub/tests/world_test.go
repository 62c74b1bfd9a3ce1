package tests

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// testTimeout is when a test gives up to wait for what it wants to see.
const testTimeout = 2 * time.Minute

// world is a hub on a real API server with drivers of its own on real sockets.
// Worlds of several tests share the API server and do not see each other.
type world struct {
	t       *testing.T
	ctx     context.Context // ends when the test does, or after testTimeout
	plane   *testbed.ControlPlane
	cluster *testbed.Cluster
	watcher *testbed.Watcher[*storagev1.VolumeAttachment]
	dir     string
	drivers registry.Snapshot
	servers map[string]*fakecsi.Server
	backend map[string]*fakecsi.Backend
	options hub.Options
	// intercept gets the calls of the drivers that are started next; may be nil.
	intercept grpc.UnaryServerInterceptor
	updates   chan registry.Snapshot                  // to the hub that was started last
	logs      []ktesting.Buffer                       // of each hub
	leases    *testbed.Watcher[*coordinationv1.Lease] // in the test's own namespace, once there is one
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, testbed.Shared(t))
}

func newWorldOn(t *testing.T, plane *testbed.ControlPlane) *world {
	t.Helper()
	w := &world{t: t, plane: plane, dir: testbed.ShortTempDir(t), drivers: registry.Snapshot{},
		servers: map[string]*fakecsi.Server{}, backend: map[string]*fakecsi.Backend{}}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w.ctx = ctx
	w.cluster = testbed.NewCluster(w.plane.Clientset())
	w.options = hub.Options{Kube: w.plane.Clientset(), Grace: 10 * time.Second}
	watcher, err := testbed.WatchVolumeAttachments(ctx, w.plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	w.watcher = watcher
	return w
}

// name makes a name of this test's own.
func (w *world) name(s string) string {
	test := strings.ToLower(w.t.Name())
	if i := strings.LastIndexByte(test, '/'); i >= 0 {
		test = test[i+1:]
	}
	test = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, test), "-")
	return fmt.Sprintf("%s.%.40s", s, test)
}

// driver starts a fake driver and has the hub serve it. Without a name in the
// options it gets one of this test's own.
func (w *world) driver(name string, o fakecsi.Options) (string, *fakecsi.Backend) {
	w.t.Helper()
	o.Name = cmp.Or(o.Name, w.name(name))
	backend, err := fakecsi.New(o)
	if err != nil {
		w.t.Fatal(err)
	}
	endpoint := "unix://" + filepath.Join(w.dir, name)
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: endpoint, Intercept: w.intercept})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(server.Crash)
	w.drivers[o.Name] = registry.Driver{Name: o.Name, Endpoint: registry.Endpoint(endpoint), Settings: registry.DefaultSettings()}
	w.servers[o.Name], w.backend[o.Name] = server, backend
	return o.Name, backend
}

// set changes the settings of a driver, before the hub is started.
func (w *world) set(driver string, change func(*registry.Settings)) {
	d := w.drivers[driver]
	change(&d.Settings)
	w.drivers[driver] = d
}

// start runs a hub until the returned function is called, or the test ends.
func (w *world) start() (stop func()) {
	w.t.Helper()
	updates, _, stop := w.launch()
	updates <- maps.Clone(w.drivers)
	w.updates = updates
	return stop
}

// run runs a hub until the test ends, and leaves it to the test to say what it serves.
func (w *world) run() (chan<- registry.Snapshot, *hub.Hub) {
	w.t.Helper()
	updates, h, _ := w.launch()
	return updates, h
}

func (w *world) launch() (chan registry.Snapshot, *hub.Hub, func()) {
	w.t.Helper()
	h, err := hub.New(w.options)
	if err != nil {
		w.t.Fatal(err)
	}
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.Verbosity(2), ktesting.BufferLogs(true)))
	w.logs = append(w.logs, logger.GetSink().(ktesting.Underlier).GetBuffer())
	ctx, cancel := context.WithCancel(klog.NewContext(w.t.Context(), logger))
	updates := make(chan registry.Snapshot, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Run(ctx, updates); err != nil {
			w.t.Errorf("the hub ended with %v", err)
		}
	}()
	stop := sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return updates, h, stop
}

// logged returns what all hubs have logged.
func (w *world) logged() string {
	var all strings.Builder
	for _, log := range w.logs {
		all.WriteString(log.String())
	}
	return all.String()
}

// node makes a node on which the drivers call it by its name.
func (w *world) node(name string, drivers ...string) string {
	w.t.Helper()
	ids := map[string]string{}
	for _, d := range drivers {
		ids[d] = "id-" + name
	}
	name = w.name(name)
	w.create(testbed.CSINode{Node: name, Drivers: ids})
	return name
}

func (w *world) create(objects ...testbed.Object) {
	w.t.Helper()
	if err := w.cluster.Create(w.ctx, objects...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(objects ...testbed.Object) {
	w.t.Helper()
	if err := w.cluster.Delete(w.ctx, objects...); err != nil {
		w.t.Fatal(err)
	}
}

// volume makes a volume of a driver, with the name as its handle, and returns
// what attaches it to a node.
func (w *world) volume(name, driver, node string) testbed.VolumeAttachment {
	w.t.Helper()
	w.create(testbed.PersistentVolume{Name: w.name(name), Driver: driver, Handle: name})
	return testbed.VolumeAttachment{Name: w.name(name), Driver: driver, Node: node, PersistentVolume: w.name(name)}
}

// own returns this test's VolumeAttachments among all.
func (w *world) own(all []*storagev1.VolumeAttachment) []*storagev1.VolumeAttachment {
	var own []*storagev1.VolumeAttachment
	for _, va := range all {
		if w.drivers[va.Spec.Attacher].Name != "" {
			own = append(own, va)
		}
	}
	return own
}

// waitFor waits until the test's VolumeAttachments are as they should be.
func (w *world) waitFor(what string, holds func([]*storagev1.VolumeAttachment) bool) {
	w.t.Helper()
	err := w.watcher.WaitFor(w.ctx, what, func(all []*storagev1.VolumeAttachment) bool { return holds(w.own(all)) })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) waitAllAttached(n int) {
	w.t.Helper()
	w.waitFor(fmt.Sprintf("%d attached", n), testbed.AllAttached(n))
}

func (w *world) waitNoneLeft() {
	w.t.Helper()
	w.waitFor("no VolumeAttachment left", testbed.NoneLeft[*storagev1.VolumeAttachment])
}

// waitForOne waits until one VolumeAttachment is as it should be, and returns it.
func (w *world) waitForOne(name, what string, holds func(*storagev1.VolumeAttachment) bool) *storagev1.VolumeAttachment {
	w.t.Helper()
	var found *storagev1.VolumeAttachment
	w.waitFor(name+" "+what, func(all []*storagev1.VolumeAttachment) bool {
		for _, va := range all {
			if va.Name == name && holds(va) {
				found = va
				return true
			}
		}
		return false
	})
	return found
}

// waitBooks waits until a driver's books are as they should be.
func (w *world) waitBooks(b *fakecsi.Backend, what string, holds func(fakecsi.Books) bool) {
	w.t.Helper()
	if err := b.Wait(w.ctx, holds); err != nil {
		w.t.Fatalf("wait until %s: %v", what, err)
	}
}

// turn changes how a driver behaves.
func (w *world) turn(b *fakecsi.Backend, k fakecsi.Knobs) {
	w.t.Helper()
	if err := b.Set(k); err != nil {
		w.t.Fatal(err)
	}
}

// get reads a VolumeAttachment from the API server, not from a cache.
func (w *world) get(name string) *storagev1.VolumeAttachment {
	w.t.Helper()
	va, err := w.plane.Clientset().StorageV1().VolumeAttachments().Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return va
}

// checkBooks checks what must hold of every driver at any time, and what is
// attached now.
func (w *world) checkBooks(attachedVolumes map[string]int) {
	w.t.Helper()
	for name, backend := range w.backend {
		b := backend.Books()
		if err := b.Check(); err != nil {
			w.t.Error(err)
		}
		if len(b.Attached) != attachedVolumes[name] {
			w.t.Errorf("%s: %d volumes attached, want %d", name, len(b.Attached), attachedVolumes[name])
		}
	}
}
