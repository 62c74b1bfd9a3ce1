package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// namespace holds the leases and the secrets.
	namespace = "default"
	nodeCount = 4
	hubCount  = 2
)

// world is a testbed.World with hubs behind proxies and pods that use volumes.
type world struct {
	*testbed.World // nil if its start has failed
	options        Options
	load           load
	history        *history
	tail           record               // what the next check of the history builds on
	client         kubernetes.Interface // not behind a proxy
	config         *driversFile
	storages       []*storage
	hubs           []*replica
	pods           []*pod
	podByName      map[string]*pod
	all            []*volume
	volumes        *testbed.Watcher[*corev1.PersistentVolume]

	hasty     atomic.Bool   // VolumeAttachments may go without their finalizer
	still     atomic.Bool   // pods begin no move during a takeover
	surviving atomic.Bool   // the first hub must not end
	resting   atomic.Bool   // pods stay where they are
	changed   chan struct{} // wakes awaitQuiet
	running   sync.WaitGroup
	end       context.CancelFunc // ends the goroutines in running
	cleared   bool               // all pods have left for good; no PersistentVolume should exist

	mu       sync.Mutex     // guards all below
	names    map[int]string // of the hubs' processes, by process ID
	findings []Finding
	err      error // why chaos itself cannot go on
}

// newWorld starts everything. The caller must close the world, also after an error.
func newWorld(ctx context.Context, o Options, l load) (*world, error) {
	w := &world{options: o, load: l, changed: make(chan struct{}, 1), podByName: map[string]*pod{}, names: map[int]string{}}
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	w.resting.Store(true)
	for _, step := range []func(context.Context) error{w.start, w.makeObjects, w.startHubs} {
		if err := step(ctx); err != nil {
			return w, err
		}
	}
	for _, s := range w.storages {
		w.running.Go(func() {
			_ = s.Backend.Wait(background, func(fakecsi.Books) bool { w.wake(); return false }) // ends with the context
		})
	}
	for _, p := range w.pods {
		w.running.Go(func() { p.run(background) })
	}
	return w, nil
}

// start starts everything but the hubs.
func (w *world) start(ctx context.Context) (err error) {
	if w.load.history {
		if w.history, err = openHistory(w.options.History, w.processName); err != nil {
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
		d := fakecsi.Options{Name: fmt.Sprintf("chaos-d%d", i), CountersOnly: true}
		if w.history != nil {
			d.Observe = w.history.saw
		}
		o.Drivers = append(o.Drivers, d)
		w.storages = append(w.storages, &storage{})
		w.addVolumes(i, o.Nodes)
	}
	if w.World, err = testbed.StartWorld(ctx, o); err != nil {
		return err
	}
	for i, d := range w.Drivers {
		w.storages[i].Driver = d
	}
	if w.client, err = w.recordedClient(); err != nil {
		return err
	}
	w.Cluster = testbed.NewCluster(w.client)
	w.volumes, err = testbed.WatchPersistentVolumes(ctx, w.client, func(_, _ *corev1.PersistentVolume) { w.wake() })
	return err
}

func secretName(storage int) string { return fmt.Sprintf("secret%d", storage) }

func secret(storage int) testbed.Secret {
	return testbed.Secret{Namespace: namespace, Name: secretName(storage), Data: map[string]string{"key": "value"}}
}

// makeObjects makes secrets, PersistentVolumes and drivers.yaml.
func (w *world) makeObjects(ctx context.Context) (err error) {
	var objects []testbed.Object
	for i := range w.storages {
		objects = append(objects, secret(i))
	}
	for _, v := range w.persistent() {
		objects = append(objects, v.object())
	}
	if w.config, err = newDriversFile(w.ConfigPath(), w.Drivers, w.load); err != nil {
		return err
	}
	return w.Cluster.Create(ctx, objects...)
}

// saw handles every change of a VolumeAttachment.
func (w *world) saw(was, now *storagev1.VolumeAttachment) {
	va := now
	if va == nil {
		va = was
	}
	name, _, _ := strings.Cut(va.Name, ".")
	if p := w.podByName[name]; p != nil {
		if w.history != nil {
			w.history.add(p.volume.name, "%s", describe(was, now))
		}
		p.nudge()
	}
	w.wake()
}

// describe returns a line about a change of a VolumeAttachment.
func describe(was, now *storagev1.VolumeAttachment) string {
	if now == nil {
		return "VolumeAttachment " + was.Name + " is gone"
	}
	text := fmt.Sprintf("VolumeAttachment %s: uid %.8s attached %v, finalizers %v", now.Name, now.UID, now.Status.Attached, now.Finalizers)
	if now.DeletionTimestamp != nil {
		text += ", being deleted"
	}
	for _, e := range []*storagev1.VolumeError{now.Status.AttachError, now.Status.DetachError} {
		if e != nil {
			text += ", error " + e.Message
		}
	}
	return text
}

func (w *world) startHubs(ctx context.Context) error {
	for i := range hubCount {
		r, err := newReplica(w, i)
		if err != nil {
			return err
		}
		w.hubs = append(w.hubs, r)
	}
	return w.hubs[0].start(context.WithoutCancel(ctx))
}

// wake lets awaitQuiet look again.
func (w *world) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// find adds a finding.
func (w *world) find(f Finding) {
	w.mu.Lock()
	w.findings = append(w.findings, f)
	w.mu.Unlock()
	w.history.add(f.About, "DOES NOT HOLD: %s", f.Text)
	w.wake()
}

// found returns the findings of find so far.
func (w *world) found() []Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.findings
}

// fail notes why chaos itself cannot go on.
func (w *world) fail(err error) {
	w.mu.Lock()
	w.err = errors.Join(w.err, err)
	w.mu.Unlock()
	w.wake()
}

func (w *world) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// remove deletes an object that has no finalizer.
func (w *world) remove(ctx context.Context, o testbed.Object) error {
	return testbed.Insist(ctx, "delete "+o.String(), func(ctx context.Context) error { return w.Cluster.Delete(ctx, o) })
}

// list asks the API server: a watch may be behind.
func (w *world) list(ctx context.Context) (vas []storagev1.VolumeAttachment, pvs []corev1.PersistentVolume, err error) {
	err = testbed.Insist(ctx, "list objects", func(ctx context.Context) error {
		vaList, err := w.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pvList, err := w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		vas, pvs = vaList.Items, pvList.Items
		return nil
	})
	return vas, pvs, err
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
