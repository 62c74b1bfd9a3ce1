package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// namespace has the leases and the secrets.
	namespace = "default"
	nodeCount = 4
	hubCount  = 2
)

// world is all that there is: the control plane, storages, hubs, and the pods that use volumes.
type world struct {
	options  Options
	journal  *journal
	plane    *testbed.ControlPlane
	client   kubernetes.Interface // has its own way to the API server
	cluster  *testbed.Cluster
	config   *driversFile
	storages []*storage
	hubs     []*replica
	pods     []*pod
	all      []*volume

	attachments *testbed.Watcher[*storagev1.VolumeAttachment]
	volumes     *testbed.Watcher[*corev1.PersistentVolume]

	hasty   atomic.Bool   // VolumeAttachments may go without their finalizer
	resting atomic.Bool   // pods are to stay where they are
	changed chan struct{} // something has changed that an audit looks at
	running sync.WaitGroup
	end     context.CancelFunc // ends what runs in the background
	cleared bool               // all pods have left for good, and no PersistentVolume is to be there

	mu       sync.Mutex // guards all below
	findings []Finding
	err      error // chaos itself cannot go on
}

// together calls f with all of them at once, and returns the errors.
func together[T any](all []T, f func(T) error) error {
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, one := range all {
		calls.Go(func() { errs[i] = f(one) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// newWorld starts all. It blocks until the pods are there. Whatever it returns, close is needed.
func newWorld(ctx context.Context, o Options) (*world, error) {
	w := &world{options: o, changed: make(chan struct{}, 1)}
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	w.resting.Store(true)
	var err error
	if w.journal, err = openJournal(filepath.Join(o.Dir, "journal.log")); err != nil {
		return w, err
	}
	w.plane, err = testbed.StartControlPlane(ctx, testbed.ControlPlaneOptions{Dir: filepath.Join(o.Dir, "controlplane"), Log: o.Out})
	if err != nil {
		return w, err
	}
	w.client = w.plane.Clientset()
	w.cluster = testbed.NewCluster(w.client)
	for _, step := range []func(context.Context) error{w.furnish, w.watch, w.startHubs} {
		if err := step(ctx); err != nil {
			return w, err
		}
	}
	for _, s := range w.storages {
		w.running.Go(func() {
			_ = s.backend.Wait(background, func(fakecsi.Books) bool { w.wake(); return false }) // ends with the context
		})
	}
	for _, p := range w.pods {
		w.running.Go(func() { p.run(background) })
	}
	return w, nil
}

func nodeName(i int) string { return fmt.Sprintf("node%d", i) }

// nodeID is what drivers call a node.
func nodeID(node string) string { return "id-" + node }

func (w *world) secretName(storage int) string { return fmt.Sprintf("secret%d", storage) }

// furnish starts the storages, and makes nodes, secrets and volumes.
func (w *world) furnish(ctx context.Context) error {
	var objects []testbed.Object
	for i := range w.options.Drivers {
		s, err := newStorage(fmt.Sprintf("chaos-d%d", i), filepath.Join(w.options.Dir, fmt.Sprintf("d%d", i)))
		if err != nil {
			return err
		}
		w.storages = append(w.storages, s)
		objects = append(objects, w.secret(i))
		w.addVolumes(i, s)
	}
	for i := range nodeCount {
		objects = append(objects, testbed.Node{Name: nodeName(i)}, w.csiNode(i))
	}
	for _, v := range w.all {
		if !v.inline {
			objects = append(objects, v.object())
		}
	}
	var err error
	if w.config, err = newDriversFile(filepath.Join(w.options.Dir, "drivers.yaml"), w.storages); err != nil {
		return err
	}
	return w.cluster.Create(ctx, objects...)
}

func (w *world) csiNode(i int) testbed.CSINode {
	n := testbed.CSINode{Node: nodeName(i), Drivers: map[string]string{}}
	for _, s := range w.storages {
		n.Drivers[s.driver] = nodeID(n.Node)
	}
	return n
}

func (w *world) secret(storage int) testbed.Secret {
	return testbed.Secret{Namespace: namespace, Name: w.secretName(storage), Data: map[string]string{"key": "value"}}
}

// addVolumes makes the model of a storage's volumes, of every sort, and of their pods.
func (w *world) addVolumes(storage int, s *storage) {
	for i, v := range []volume{{}, {}, {}, {block: true}, {secret: w.secretName(storage)}, {inline: true}, {shared: true}} {
		v.world, v.storage, v.name = w, s, fmt.Sprintf("d%d-v%d", storage, i)
		w.all = append(w.all, &v)
		w.addPods(&v)
	}
}

// addPods gives a volume its pod; one that many nodes may have gets one on each node, so that
// there are calls for it on many nodes at once.
func (w *world) addPods(v *volume) {
	var nodes []string
	for i := range nodeCount {
		nodes = append(nodes, nodeName(i))
	}
	parts := [][]string{nodes}
	if v.shared {
		parts = slices.Collect(slices.Chunk(nodes, 1))
	}
	for i, part := range parts {
		w.pods = append(w.pods, &pod{
			world: w, name: fmt.Sprintf("%s-p%d", v.name, i), volume: v, nodes: part,
			random: rand.New(rand.NewPCG(w.options.Seed, uint64(len(w.pods)))), orders: make(chan Kind, 1), changed: make(chan struct{}, 1),
			seen: map[string]*storagev1.VolumeAttachment{},
		})
	}
}

// watch follows what becomes of the objects.
func (w *world) watch(ctx context.Context) (err error) {
	pods := map[string]*pod{}
	for _, p := range w.pods {
		pods[p.name] = p
	}
	w.attachments, err = testbed.WatchVolumeAttachments(ctx, w.client, func(was, now *storagev1.VolumeAttachment) {
		va := now
		if va == nil {
			va = was
		}
		name, _, _ := strings.Cut(va.Name, ".")
		if p := pods[name]; p != nil {
			w.journal.add(p.volume.name, "%s", describe(was, now))
			p.saw(va.Name, now)
		}
		w.wake()
	})
	if err != nil {
		return err
	}
	w.volumes, err = testbed.WatchPersistentVolumes(ctx, w.client, func(_, _ *corev1.PersistentVolume) { w.wake() })
	return err
}

// describe says what has become of a VolumeAttachment.
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

// wake has whoever waits for quiet look again.
func (w *world) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// find notes that something does not hold.
func (w *world) find(f Finding) {
	w.mu.Lock()
	w.findings = append(w.findings, f)
	w.mu.Unlock()
	w.journal.add(f.About, "DOES NOT HOLD: %s", f.Text)
	w.wake()
}

// found returns what was noted so far.
func (w *world) found() []Finding {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.findings
}

// fail notes that chaos itself cannot go on.
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

// recreate makes an object that is missing.
func (w *world) recreate(ctx context.Context, o testbed.Object) error {
	return insist(ctx, "create "+o.String(), func(ctx context.Context) error {
		if err := w.cluster.Create(ctx, o); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// remove deletes an object that has no finalizer.
func (w *world) remove(ctx context.Context, o testbed.Object) error {
	return insist(ctx, "delete "+o.String(), func(ctx context.Context) error { return w.cluster.Delete(ctx, o) })
}

// list asks the API server itself: a watch may be behind.
func (w *world) list(ctx context.Context) (vas []storagev1.VolumeAttachment, pvs []corev1.PersistentVolume, err error) {
	err = insist(ctx, "list objects", func(ctx context.Context) error {
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

// close stops all that runs and blocks until it has ended.
func (w *world) close(ctx context.Context) error {
	var errs []error
	w.end()
	w.running.Wait()
	for _, r := range w.hubs {
		r.kill()
		r.lives.Wait()
		r.proxy.close()
	}
	for _, s := range w.storages {
		s.server.Crash()
	}
	if w.attachments != nil {
		w.attachments.Close()
	}
	if w.volumes != nil {
		w.volumes.Close()
	}
	if w.plane != nil {
		errs = append(errs, w.plane.Stop(ctx))
	}
	if w.journal != nil {
		errs = append(errs, w.journal.close())
	}
	return errors.Join(errs...)
}
