package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// namespace holds the leases and the secrets.
	namespace = "default"
	nodeCount = 4
	hubCount  = 2
	// closeTime bounds the stop of everything.
	closeTime = time.Minute
)

// Options of a run.
type Options struct {
	Seed    uint64 // fixes the plan: which faults begin in which order, and where. The timing of processes still varies.
	Faults  int    // the least number; only chaos has them
	Hub     string // binary of cmd/csi-attach-hub
	Dir     string // an existing folder for sockets, state, logs and the history, with a short path; the caller removes it
	Drivers int
	Out     io.Writer // gets progress lines
}

// load says what pods ask for, and how hubs and drivers are set up while nothing is wrong.
type load struct {
	sorts     []volume        // of each driver's volumes
	linger    time.Duration   // how long a pod stays where it is, on average
	latency   fakecsi.Latency // of the drivers' calls
	defaults  string          // in drivers.yaml
	settings  func(driver int) settings
	hubFlags  []string
	verbosity int      // of the hubs' logs
	history   *history // nil: none; memory grows with it
	early     int      // one of so many moves deletes its VolumeAttachment at once; 0: none
}

// sorts are the sorts of volumes.
var sorts = []volume{{}, {}, {}, {block: true}, {secret: true}, {inline: true}, {shared: true}}

// world is a testbed.World with hubs behind proxies, pods that use volumes, and a history.
type world struct {
	*testbed.World // nil if its start has failed
	options        Options
	load
	client  kubernetes.Interface // not behind a proxy
	config  *driversFile
	hubs    []*replica
	pods    []*pod
	all     []*volume
	volumes *testbed.Watcher[*corev1.PersistentVolume]

	hasty   atomic.Bool // VolumeAttachments may go without their finalizer
	resting atomic.Bool // pods stay where they are
	stopped sync.Mutex  // held while the API server is stopped
	crashed sync.Map    // by index: drivers that are down
	running sync.WaitGroup
	end     context.CancelFunc // ends the goroutines in running

	mu       sync.Mutex // guards all below
	findings []Finding
	err      error // why the run itself cannot go on
}

// within starts a world, acts in it, and stops it.
func within(ctx context.Context, o Options, l load, act func(context.Context, *world) error) error {
	ctx, cancel := context.WithCancel(ctx)
	w := &world{options: o, load: l}
	w.resting.Store(true)
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	err := w.start(ctx, background)
	if err == nil {
		err = act(ctx, w)
	}
	cancel()
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer done()
	return errors.Join(err, w.close(ending))
}

// start starts everything.
func (w *world) start(ctx, background context.Context) (err error) {
	o := testbed.WorldOptions{
		Dir: w.options.Dir, Hub: w.options.Hub, ControlPlane: testbed.ControlPlaneOptions{Log: w.options.Out},
		Latency: w.latency, OnAttachment: w.saw,
	}
	for i := range nodeCount {
		o.Nodes = append(o.Nodes, fmt.Sprintf("node%d", i))
	}
	for i := range w.options.Drivers {
		d := fakecsi.Options{Name: driverName(i), CountersOnly: true}
		if w.history != nil {
			d.Observe = w.history.saw
		}
		o.Drivers = append(o.Drivers, d)
		w.addVolumes(i, o.Nodes)
	}
	if w.World, err = testbed.StartWorld(ctx, o); err != nil {
		return err
	}
	config := w.Plane.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &proxy{next: next, history: w.history} })
	if w.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	w.Cluster = testbed.NewCluster(w.client)
	if w.volumes, err = testbed.WatchPersistentVolumes(ctx, w.client, nil); err != nil {
		return err
	}
	var objects []testbed.Object
	for i := range w.Drivers {
		objects = append(objects, secret(i))
	}
	for _, v := range w.persistent() {
		objects = append(objects, v.object())
	}
	if err := w.Cluster.Create(ctx, objects...); err != nil {
		return err
	}
	w.config = &driversFile{path: w.ConfigPath(), drivers: w.Drivers}
	if err := w.config.change(func(c *driversFile) { c.reset(w.load) }); err != nil {
		return err
	}
	for i := range hubCount {
		r, err := newReplica(w, i)
		if err != nil {
			return err
		}
		w.hubs = append(w.hubs, r)
	}
	if err := w.hubs[0].start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	for _, p := range w.pods {
		w.running.Go(func() { p.run(background) })
	}
	return nil
}

// addVolumes adds a driver's volumes and their pods. A shared volume gets one pod on each node, so that there are
// calls for it on many nodes at once.
func (w *world) addVolumes(driver int, nodes []string) {
	for i := range w.sorts {
		sort := &w.sorts[i]
		v := &volume{world: w, driver: driver, name: fmt.Sprintf("d%d-v%d", driver, i), inline: sort.inline, block: sort.block, shared: sort.shared, secret: sort.secret}
		w.all = append(w.all, v)
		parts := [][]string{nodes}
		if v.shared {
			parts = slices.Collect(slices.Chunk(nodes, 1))
		}
		for i, part := range parts {
			p := &pod{world: w, name: fmt.Sprintf("%s-p%d", v.name, i), volume: v, nodes: part,
				random: rand.New(rand.NewPCG(w.options.Seed, uint64(len(w.pods)))), orders: make(chan Kind, 1)}
			w.pods = append(w.pods, p)
		}
	}
}

// persistent returns the volumes that have a PersistentVolume.
func (w *world) persistent() []*volume {
	return slices.DeleteFunc(slices.Clone(w.all), func(v *volume) bool { return v.inline || v.gone.Load() })
}

// saw handles every change of a VolumeAttachment.
func (w *world) saw(_, va *storagev1.VolumeAttachment) {
	if va != nil && va.Status.AttachError != nil {
		w.history.add(placeOf("volumeattachments", va.Name).Volume, "VolumeAttachment %s has the error %s", va.Name, va.Status.AttachError.Message)
	}
}

// find adds a finding.
func (w *world) find(f Finding) {
	w.mu.Lock()
	w.findings = append(w.findings, f)
	w.mu.Unlock()
	w.history.add(f.About, "DOES NOT HOLD: %s", f.Text)
}

// fail notes why the run itself cannot go on.
func (w *world) fail(err error) {
	w.mu.Lock()
	w.err = errors.Join(w.err, err)
	w.mu.Unlock()
}

// found returns what find and fail have got so far.
func (w *world) found() ([]Finding, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.findings, w.err
}

// close stops everything and blocks until it has ended.
func (w *world) close(ctx context.Context) error {
	w.end()
	w.running.Wait()
	for _, r := range w.hubs {
		r.kill()
		r.lives.Wait()
		r.proxy.Close()
	}
	if w.volumes != nil {
		w.volumes.Close()
	}
	var err error
	if w.World != nil {
		err = w.Stop(ctx)
	}
	return errors.Join(err, w.history.save(filepath.Join(w.options.Dir, "history")))
}
