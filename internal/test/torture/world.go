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
	"strings"
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
	Seed    uint64    // fixes the plan: which faults begin in which order, and where. The timing of processes still varies.
	Faults  int       // the least number; only chaos has them
	Hub     string    // binary of cmd/csi-attach-hub
	Dir     string    // an existing folder for sockets, state and logs, with a short path; the caller removes it
	Drivers int       // 0 means 4
	History string    // file that gets the history, one event a line; empty means history in Dir
	Out     io.Writer // gets progress lines; nil: none
	// QuietWithin bounds the time from the end of a stretch until the audit finds nothing; 0 means 90 s.
	QuietWithin time.Duration
}

// filled returns the options with their defaults.
func (o Options) filled() (Options, error) {
	if o.Hub == "" || o.Dir == "" {
		return o, errors.New("torture: Hub and Dir must be set")
	}
	if o.Drivers == 0 {
		o.Drivers = 4
	}
	if o.QuietWithin == 0 {
		o.QuietWithin = 90 * time.Second
	}
	if o.History == "" {
		o.History = filepath.Join(o.Dir, "history")
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o, nil
}

// load says what pods ask for, and how hubs and drivers are set up while nothing is wrong.
type load struct {
	sorts     []volume        // of each driver's volumes
	linger    time.Duration   // how long a pod stays where it is, on average
	latency   fakecsi.Latency // of the drivers' calls
	defaults  string          // in drivers.yaml
	settings  func(driver int) settings
	hubFlags  []string
	verbosity int  // of the hubs' logs
	history   bool // keep a history: memory grows with the run
	early     int  // one of so many moves deletes its VolumeAttachment at once; 0: none
}

// world is a testbed.World with hubs behind proxies, pods that use volumes, and a history.
type world struct {
	*testbed.World // nil if its start has failed
	options        Options
	load           load
	history        *history
	tail           record               // what the next check of the history builds on
	client         kubernetes.Interface // not behind a proxy
	config         *driversFile
	hubs           []*replica
	pods           []*pod
	podByName      map[string]*pod
	all            []*volume
	volumes        *testbed.Watcher[*corev1.PersistentVolume]

	hasty   atomic.Bool   // VolumeAttachments may go without their finalizer
	still   atomic.Bool   // pods begin no move during a takeover
	resting atomic.Bool   // pods stay where they are
	changed chan struct{} // wakes awaitQuiet
	running sync.WaitGroup
	end     context.CancelFunc // ends the goroutines in running

	mu       sync.Mutex        // guards all below
	nodeIDs  map[string]string // those that are not testbed.NodeID, by node
	findings []Finding
	err      error // why the run itself cannot go on
}

// within starts a world, acts in it, and stops it.
func within(ctx context.Context, o Options, l load, act func(context.Context, *world) error) error {
	o, err := o.filled()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &world{options: o, load: l, changed: make(chan struct{}, 1), podByName: map[string]*pod{}, nodeIDs: map[string]string{}}
	w.resting.Store(true)
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	if err = w.start(ctx, background); err == nil {
		err = act(ctx, w)
	}
	cancel()
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer done()
	return errors.Join(err, w.close(ending))
}

// start starts everything.
func (w *world) start(ctx, background context.Context) (err error) {
	if w.load.history {
		if w.history, err = openHistory(w.options.History); err != nil {
			return err
		}
	}
	o := testbed.WorldOptions{
		Dir: w.options.Dir, Hub: w.options.Hub, ControlPlane: testbed.ControlPlaneOptions{Log: w.options.Out},
		Latency: w.load.latency, OnAttachment: w.saw,
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
	if w.volumes, err = testbed.WatchPersistentVolumes(ctx, w.client, func(_, _ *corev1.PersistentVolume) { w.wake() }); err != nil {
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
	w.config = &driversFile{path: w.ConfigPath(), drivers: w.Drivers, defaults: w.load.defaults, settings: make([]settings, len(w.Drivers)), whole: true}
	for i := range w.Drivers {
		w.config.settings[i] = w.load.settings(i)
	}
	if err := w.config.write(); err != nil {
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
	for _, d := range w.Drivers {
		w.running.Go(func() {
			_ = d.Backend.Wait(background, func(fakecsi.Books) bool { w.wake(); return false }) // ends with the context
		})
	}
	for _, p := range w.pods {
		w.running.Go(func() { p.run(background) })
	}
	return nil
}

// addVolumes adds a driver's volumes and their pods. A shared volume gets one pod on each node, so that there are
// calls for it on many nodes at once.
func (w *world) addVolumes(driver int, nodes []string) {
	for i := range w.load.sorts {
		sort := &w.load.sorts[i]
		v := &volume{world: w, driver: driver, name: fmt.Sprintf("d%d-v%d", driver, i), inline: sort.inline, block: sort.block, shared: sort.shared, secret: sort.secret}
		w.all = append(w.all, v)
		parts := [][]string{nodes}
		if v.shared {
			parts = slices.Collect(slices.Chunk(nodes, 1))
		}
		for i, part := range parts {
			p := &pod{world: w, name: fmt.Sprintf("%s-p%d", v.name, i), volume: v, nodes: part,
				random: rand.New(rand.NewPCG(w.options.Seed, uint64(len(w.pods)))), orders: make(chan Kind, 1), changed: make(chan struct{}, 1)}
			w.pods, w.podByName[p.name] = append(w.pods, p), p
		}
	}
}

// persistent returns the volumes that have a PersistentVolume.
func (w *world) persistent() []*volume {
	return slices.DeleteFunc(slices.Clone(w.all), func(v *volume) bool { return v.inline || v.gone.Load() })
}

// saw handles every change of a VolumeAttachment.
func (w *world) saw(was, now *storagev1.VolumeAttachment) {
	va := now
	if va == nil {
		va = was
	}
	name, _, _ := strings.Cut(va.Name, ".")
	if p := w.podByName[name]; p != nil {
		if e := va.Status.AttachError; e != nil {
			w.history.add(p.volume.name, "VolumeAttachment %s has the error %s", va.Name, e.Message)
		}
		p.nudge()
	}
	w.wake()
}

// wake lets awaitQuiet look again.
func (w *world) wake() { signal(w.changed) }

// find adds a finding.
func (w *world) find(f Finding) {
	w.mu.Lock()
	w.findings = append(w.findings, f)
	w.mu.Unlock()
	w.history.add(f.About, "DOES NOT HOLD: %s", f.Text)
	w.wake()
}

// fail notes why the run itself cannot go on.
func (w *world) fail(err error) {
	w.mu.Lock()
	w.err = errors.Join(w.err, err)
	w.mu.Unlock()
	w.wake()
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
	return errors.Join(err, w.history.close())
}
