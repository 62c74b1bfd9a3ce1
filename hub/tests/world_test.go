package tests

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// testTimeout is when a test gives up to wait for what it wants to see.
const testTimeout = 10 * time.Minute

// world is a hub on a real API server with drivers of its own on real sockets.
// Worlds of several tests share the API server and do not see each other.
type world struct {
	objects
	plane   *testbed.ControlPlane
	watcher *testbed.Watcher[*storagev1.VolumeAttachment]
	dir     string
	drivers registry.Snapshot
	servers map[string]*fakecsi.Server
	backend map[string]*fakecsi.Backend
	options hub.Options
	hub     *hub.Hub               // the one that was started last
	updates chan registry.Snapshot // to that one
	logs    []ktesting.Buffer      // of each hub
}

func newWorld(t *testing.T) *world {
	t.Helper()
	notShort(t)
	return newWorldOn(t, testbed.Shared(t))
}

// notShort skips a test that needs a real API server with -short.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short leaves out what needs a real API server: run it without")
	}
}

func newWorldOn(t *testing.T, plane *testbed.ControlPlane) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	watcher, err := testbed.WatchVolumeAttachments(ctx, plane.Clientset(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Close)
	return &world{objects: objects{t: t, ctx: ctx, kube: plane.Clientset(), cluster: testbed.NewCluster(plane.Clientset())},
		plane: plane, watcher: watcher, dir: testbed.ShortTempDir(t), drivers: registry.Snapshot{}, servers: map[string]*fakecsi.Server{},
		backend: map[string]*fakecsi.Backend{}, options: hub.Options{Kube: plane.Clientset(), Grace: 10 * time.Second}}
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
	server := w.server(backend, name)
	w.restart(server)
	w.drivers[o.Name] = registry.Driver{Name: o.Name, Endpoint: registry.Endpoint(server.Endpoint()), Settings: registry.DefaultSettings()}
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
	logger := ktesting.NewLogger(w.t, ktesting.NewConfig(ktesting.Verbosity(2), ktesting.BufferLogs(true)))
	w.logs = append(w.logs, logger.GetSink().(ktesting.Underlier).GetBuffer())
	w.hub, w.updates, stop = startHub(w.t, w.options, logger)
	w.updates <- maps.Clone(w.drivers)
	return stop
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
		i := slices.IndexFunc(all, func(va *storagev1.VolumeAttachment) bool { return va.Name == name && holds(va) })
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
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

// setKnobs changes how a driver behaves.
func (w *world) setKnobs(b *fakecsi.Backend, k fakecsi.Knobs) {
	w.t.Helper()
	if err := b.Set(k); err != nil {
		w.t.Fatal(err)
	}
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

// objects are the objects of the Kubernetes API in a world: a real one, or a virtual one.
type objects struct {
	t       *testing.T
	ctx     context.Context
	kube    kubernetes.Interface
	cluster *testbed.Cluster
}

func (o *objects) create(objects ...testbed.Object) {
	o.t.Helper()
	if err := o.cluster.Create(o.ctx, objects...); err != nil {
		o.t.Fatal(err)
	}
}

func (o *objects) delete(objects ...testbed.Object) {
	o.t.Helper()
	if err := o.cluster.Delete(o.ctx, objects...); err != nil {
		o.t.Fatal(err)
	}
}

// write creates a VolumeAttachment that somebody else has worked on.
func (o *objects) write(va *storagev1.VolumeAttachment) {
	o.t.Helper()
	if _, err := o.kube.StorageV1().VolumeAttachments().Create(o.ctx, va, metav1.CreateOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

// update changes a VolumeAttachment and its status, as another client does.
func (o *objects) update(name string, change func(*storagev1.VolumeAttachment)) {
	o.t.Helper()
	client := o.kube.StorageV1().VolumeAttachments()
	va, err := client.Get(o.ctx, name, metav1.GetOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	was := va.DeepCopy()
	change(va)
	wanted := va.Status
	if !reflect.DeepEqual(was.ObjectMeta, va.ObjectMeta) {
		if va, err = client.Update(o.ctx, va, metav1.UpdateOptions{}); err != nil {
			o.t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(was.Status, wanted) {
		va.Status = wanted
		if _, err := client.UpdateStatus(o.ctx, va, metav1.UpdateOptions{}); err != nil {
			o.t.Fatal(err)
		}
	}
}

// get reads a VolumeAttachment from the API server, not from a cache. It returns nil if there is none.
func (o *objects) get(name string) *storagev1.VolumeAttachment {
	o.t.Helper()
	va, err := o.kube.StorageV1().VolumeAttachments().Get(o.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		o.t.Fatal(err)
	}
	return va
}

// getVolume reads a PersistentVolume. It returns nil if there is none.
func (o *objects) getVolume(name string) *corev1.PersistentVolume {
	o.t.Helper()
	pv, err := o.kube.CoreV1().PersistentVolumes().Get(o.ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		o.t.Fatal(err)
	}
	return pv
}

func (o *objects) hasVolume(name string) bool { return o.getVolume(name) != nil }

// updateVolume changes a PersistentVolume, as another client does.
func (o *objects) updateVolume(name string, change func(*corev1.PersistentVolume)) {
	o.t.Helper()
	client := o.kube.CoreV1().PersistentVolumes()
	pv, err := client.Get(o.ctx, name, metav1.GetOptions{})
	if err == nil {
		change(pv)
		_, err = client.Update(o.ctx, pv, metav1.UpdateOptions{})
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// removeVolume deletes a PersistentVolume by force.
func (o *objects) removeVolume(name string) {
	o.t.Helper()
	o.delete(testbed.PersistentVolume{Name: name})
	if o.hasVolume(name) {
		o.updateVolume(name, func(pv *corev1.PersistentVolume) { pv.Finalizers = nil })
	}
}

// setFinalizers writes the finalizers of a VolumeAttachment as another writer may.
func (o *objects) setFinalizers(name string, finalizers ...string) {
	o.t.Helper()
	list, _ := json.Marshal(append([]string{}, finalizers...))
	patch := []byte(`[{"op":"add","path":"/metadata/finalizers","value":` + string(list) + `}]`)
	if _, err := o.kube.StorageV1().VolumeAttachments().Patch(o.ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

// stripFinalizers takes all finalizers from a VolumeAttachment, as people do.
func (o *objects) stripFinalizers(name string) {
	o.t.Helper()
	o.setFinalizers(name)
}

// hasOwnFinalizer reports whether a VolumeAttachment or a PersistentVolume is there and has a driver's finalizer.
func hasOwnFinalizer(object metav1.Object, driver string) bool {
	return !reflect.ValueOf(object).IsNil() && attach.HasFinalizer(object.GetFinalizers(), attach.Finalizer(driver))
}

// startHub runs a hub until stop is called, or the test ends. stop blocks until it has ended.
func startHub(t *testing.T, o hub.Options, logger klog.Logger) (h *hub.Hub, updates chan registry.Snapshot, stop func()) {
	t.Helper()
	h, err := hub.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(t.Context()), logger))
	updates = make(chan registry.Snapshot, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.Run(ctx, updates); err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return h, updates, stop
}

// runLeases lets hubs compete for leases until the test ends.
func runLeases(o *objects, options lease.Options) *lease.Leases {
	o.t.Helper()
	leases, err := lease.New(options)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.ctx)) // until the hubs that use them have ended
	ended := make(chan error)
	go func() { ended <- leases.Run(ctx) }()
	o.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			o.t.Errorf("the leases ended with %v", err)
		}
	})
	return leases
}

// server is a server of a backend on another socket, which is not started.
func (w *world) server(b *fakecsi.Backend, socket string) *fakecsi.Server {
	w.t.Helper()
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: b, Endpoint: "unix://" + filepath.Join(w.dir, socket)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(server.Crash)
	return server
}

func (w *world) restart(server *fakecsi.Server) {
	w.t.Helper()
	if err := server.Start(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) retry(driver string, initial time.Duration) {
	w.set(driver, func(s *registry.Settings) { s.Retry = registry.Retry{Initial: initial, Max: max(initial, time.Minute)} })
}

// fence attaches one more volume: when it is attached, the hub has seen all that
// came before.
func (w *world) fence(name, driver, node string) {
	w.t.Helper()
	va := w.volume(name, driver, node)
	w.create(va)
	w.waitAttached(va)
}

func (w *world) waitAttached(va testbed.VolumeAttachment) *storagev1.VolumeAttachment {
	w.t.Helper()
	return w.waitForOne(va.Name, "attached", func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
}

func (w *world) waitAttachError(va testbed.VolumeAttachment) *storagev1.VolumeAttachment {
	w.t.Helper()
	return w.waitForOne(va.Name, "with an error", func(va *storagev1.VolumeAttachment) bool { return va.Status.AttachError != nil })
}

// waitInFlight waits until a driver has so many publishes and unpublishes in flight.
func (w *world) waitInFlight(b *fakecsi.Backend, n int) {
	w.t.Helper()
	w.waitBooks(b, fmt.Sprintf("%d calls are in flight", n), func(b fakecsi.Books) bool { return b.AttachInFlight.Now == n })
}

// poll asks again and again until something holds, of which no event tells.
func (w *world) poll(what string, holds func() (bool, any)) {
	w.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		done, is := holds()
		if done {
			return
		}
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.t.Fatalf("wait for %s: it is %+v", what, is)
		}
	}
}

// waitShown waits until the hub shows a driver as it should be, and returns what it shows.
func (w *world) waitShown(driver, what string, holds func(status.Driver) bool) (shown status.Driver) {
	w.t.Helper()
	w.poll(driver+" shown "+what, func() (bool, any) {
		all := w.hub.Drivers()
		i := slices.IndexFunc(all, func(d status.Driver) bool { return d.Name == driver })
		if i >= 0 {
			shown = all[i]
		}
		return i >= 0 && holds(shown), shown
	})
	return shown
}

// connections is how often a driver was connected to.
func connections(b *fakecsi.Backend) int { return b.Books().Methods[fakecsi.GetPluginInfo].Ended }
