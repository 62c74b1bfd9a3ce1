package reconcile

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	exploredLease = 15 * time.Second
	exploredRetry = 2 * time.Second
)

// exploredHost is one replica of the hub that lives: the real code, with caches that the world fills, and requests that the
// world answers. It lives in a synctest bubble for the time of one step, and only one of its workers runs at a time: the
// worker whose request has been answered, or whose run begins.
type exploredHost struct {
	cluster   *cache.Cluster
	routes    *Router
	memory    Memory
	session   Session // nil: there was none
	inFlight  *inFlight
	informers [resources]*exploredInformer
	leader    *Worker // nil: it does not lead
	workers   sync.WaitGroup
	term      int  // resourceVersion of the lease
	expired   bool // the lease was not renewed for its duration
	cut       context.CancelFunc
	calls     context.Context
	runs      map[string]*exploredKey // what each run that has not ended has seen
	seen      map[string]types.UID    // of VolumeAttachments, by name
	order     int                     // counts what due and failed note
	due       map[string]int          // when each entry that is not delayed became due, by the name of its run
	failed    map[string]int          // when the last run of each entry that has failed ended
	fault     error
}

// exploredInformer is a cache that the world fills.
type exploredInformer struct {
	toolscache.SharedIndexInformer
	indexer *sortedIndexer
}

func newExploredInformer() *exploredInformer {
	return &exploredInformer{indexer: &sortedIndexer{Indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})}}
}

// sortedIndexer returns objects by name, so that a replica does the same each time.
type sortedIndexer struct {
	toolscache.Indexer
	version string
}

func byName(objects []any) []any {
	slices.SortFunc(objects, func(a, b any) int {
		x, _ := toolscache.MetaNamespaceKeyFunc(a)
		y, _ := toolscache.MetaNamespaceKeyFunc(b)
		return cmp.Compare(x, y)
	})
	return objects
}

func (s *sortedIndexer) List() []any { return byName(s.Indexer.List()) }

func (s *sortedIndexer) ListKeys() []string {
	return slices.Sorted(slices.Values(s.Indexer.ListKeys()))
}

func (s *sortedIndexer) ByIndex(index, value string) ([]any, error) {
	objects, err := s.Indexer.ByIndex(index, value)
	return byName(objects), err
}

func (s *sortedIndexer) LastStoreSyncResourceVersion() string { return s.version }

func (i *exploredInformer) GetStore() toolscache.Store     { return i.indexer }
func (i *exploredInformer) GetIndexer() toolscache.Indexer { return i.indexer }
func (i *exploredInformer) AddIndexers(more toolscache.Indexers) error {
	return i.indexer.AddIndexers(more)
}

// exploredMetrics are those of all replicas: nobody reads them.
var exploredMetrics = status.NewMetrics()

func newExploredHost() *exploredHost {
	h := &exploredHost{runs: map[string]*exploredKey{}, seen: map[string]types.UID{}, due: map[string]int{}, failed: map[string]int{}}
	h.inFlight = &inFlight{waiting: map[string]*asked{}, sent: h.checkSent, seen: h.seen}
	for r := range h.informers {
		h.informers[r] = newExploredInformer()
	}
	cluster := cache.Over(h.inFlight, cache.Informers{Attachments: h.informers[attachments], Volumes: h.informers[volumes],
		Nodes: h.informers[nodes], Drivers: h.informers[drivers]})
	h.cluster = cluster
	h.memory = NewMemory(logr.Discard(), exploredDriver, cluster)
	h.routes = &Router{Cluster: cluster, Elsewhere: func(va *storagev1.VolumeAttachment) {
		if va.Spec.Attacher == exploredDriver {
			h.memory.ObserveDeletion(attach.Driver{Name: exploredDriver, Capabilities: capabilitiesOf(h.session)}, cluster.Inputs(va))
		}
	}}
	return h
}

// lead begins a term, as manager.lead and leader.run do.
func (h *exploredHost) lead(in input) {
	term, limit := lease.Always(), time.Duration(0)
	if in.version > 0 {
		limit = exploredLease / 3
		term = lease.NewTerm(exploredLease, exploredRetry, itoa(in.version), in.continues)
	}
	if !term.Continues() {
		h.memory.Table.Forget(time.Now())
	}
	h.term, h.expired = in.version, false
	h.session = exploredSession{inFlight: h.inFlight}
	h.calls, h.cut = context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	h.leader = New(h.options(limit), term)
	h.routes.Open(exploredDriver, h.leader)
	h.leader.LookAtAll()
	h.memory.Queue.Open()
}

// options returns what a Worker needs of the replica.
func (h *exploredHost) options(writeLimit time.Duration) Options {
	settings := registry.DefaultSettings()
	return Options{
		Memory: h.memory, Driver: exploredDriver, Cluster: h.cluster, Kube: h.inFlight, Logger: logr.Discard(), WriteLimit: writeLimit,
		Metrics: exploredMetrics.Driver(exploredDriver), Redactor: &attach.Redactor{Publications: h.memory.Table.Secrets},
		Settings: func() registry.Settings { return settings },
		Decider: func() attach.Driver {
			return attach.Driver{Name: exploredDriver, DefaultFSType: settings.DefaultFSType, NoAttach: !cache.AttachRequired(h.cluster.CSIDriver(exploredDriver)), Capabilities: capabilitiesOf(h.session)}
		},
		Session: func() Session { return h.session },
		Away:    func() error { return nil },
		ReadSecret: func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
			return h.inFlight.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		},
		Failed:   func(error, status.Failure, time.Duration) {},
		Conflict: func(status.ForeignWriter) {},
	}
}

// startDue starts all entries that may start, one after the other.
func (h *exploredHost) startDue() {
	for h.leader != nil {
		h.noteOrder()
		e, _ := h.leader.Queue.Start(time.Now())
		if e == nil {
			return
		}
		name, l := nameOfRun(e.Key), h.leader
		history := &exploredKey{}
		h.runs[name] = history
		h.observe(history)
		panics.Go(&h.workers, h.fail, func() {
			l.Work(context.WithValue(h.calls, runKey{}, name), e)
			if h.runs[name] == history {
				delete(h.runs, name)
			}
			h.noteEnd(e.Key)
		})
		synctest.Wait()
	}
}

func (h *exploredHost) fail(err error) { h.fault = err }

// noteOrder notes which entries have become due.
func (h *exploredHost) noteOrder() {
	h.order++
	for key, e := range h.entries() {
		if _, noted := h.due[nameOfRun(key)]; !noted && e.State != queue.Delayed {
			h.due[nameOfRun(key)] = h.order
		}
	}
}

// noteEnd notes the end of a run.
func (h *exploredHost) noteEnd(key queue.Key) {
	h.order++
	name := nameOfRun(key)
	e, ok := h.memory.Queue.Look(key)
	if !ok || e.State == queue.Delayed {
		delete(h.due, name)
	}
	if e.Tries > 0 {
		h.failed[name] = h.order
	}
}

// loseLease ends a term whose lease was lost, as leader.run does: all calls and requests are cancelled at once.
func (h *exploredHost) loseLease() {
	l := h.leader
	h.leader = nil
	h.cut()
	h.routes.Close(l.Driver, l)
	for waiting := h.inFlight.requests(); len(waiting) > 0; waiting = h.inFlight.requests() {
		for _, q := range waiting {
			h.inFlight.take(q.String()).answered <- answer{err: context.Canceled}
			synctest.Wait()
		}
	}
	h.workers.Wait()
	clear(h.runs)
	l.Table.Close()
	l.DetachDangling(h.calls)
}

// change takes an event of a watch, as an informer does.
func (h *exploredHost) change(e watchEvent) {
	h.see(e.object)
	h.informers[e.resource].indexer.version = e.object.GetResourceVersion()
	handlers := h.handlersOf(e.resource)
	object := cached(e.object)
	before, known, _ := h.informers[e.resource].indexer.Get(object)
	switch {
	case e.gone:
		_ = h.informers[e.resource].indexer.Delete(object)
		handlers.OnDelete(object)
	case known:
		_ = h.informers[e.resource].indexer.Update(object)
		handlers.OnUpdate(before, object)
	default:
		_ = h.informers[e.resource].indexer.Add(object)
		handlers.OnAdd(object, false)
	}
}

// relist takes the list of a resource after a watch has ended, as an informer does. The watch has missed what was between.
func (h *exploredHost) relist(r resource, objects []apiObject, version int) {
	there := map[string]bool{}
	for _, o := range objects {
		there[o.GetName()] = true
		if before, known, _ := h.informers[r].indexer.Get(cached(o)); !known || versionOf(before) != o.GetResourceVersion() {
			h.change(watchEvent{resource: r, object: o})
		}
	}
	for _, name := range h.informers[r].indexer.ListKeys() {
		if last, _, _ := h.informers[r].indexer.GetByKey(name); !there[name] {
			_ = h.informers[r].indexer.Delete(last)
			h.handlersOf(r).OnDelete(toolscache.DeletedFinalStateUnknown{Key: name, Obj: last})
		}
	}
	h.informers[r].indexer.version = itoa(version)
}

func (h *exploredHost) handlersOf(r resource) toolscache.ResourceEventHandlerFuncs {
	all := h.routes.Handlers()
	return [resources]toolscache.ResourceEventHandlerFuncs{all.Attachments, all.Volumes, all.Nodes, all.Drivers}[r]
}

// cached returns an object as its cache keeps it. The object stays as it is.
func cached(o apiObject) any {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return o.DeepCopyObject()
	}
	return attach.VolumeOf(pv.DeepCopy())
}

func versionOf(o any) string {
	switch o := o.(type) {
	case *storagev1.VolumeAttachment:
		return o.ResourceVersion
	case *attach.Volume:
		return o.ResourceVersion
	}
	return o.(apiObject).GetResourceVersion()
}

// retry ends the delay of an entry.
func (h *exploredHost) retry(name string) {
	for key := range h.entries() {
		if nameOfRun(key) == name {
			h.memory.Queue.RetryNow(key)
		}
	}
}

// entries returns the entries of the term.
func (h *exploredHost) entries() map[queue.Key]queue.Progress {
	if h.leader == nil {
		return nil
	}
	all, _ := h.memory.Queue.All()
	return all
}

// checkSent is a rule of the world that needs what the replica knows: a publish of a single-node volume does not start while
// an unpublish elsewhere is due or in flight. An unpublish that backs off holds nobody up (hub/queue/doc.go, Calls), nor does one of
// which a try has failed since the publish became due, nor a VolumeAttachment whose unpublish has succeeded and
// whose finalizer is being removed.
func (h *exploredHost) checkSent(q request) {
	if q.verb != verbPublish {
		return
	}
	var due []safety.Place
	for _, va := range h.cluster.AttachmentsOfDriver(exploredDriver) {
		va = h.overlay().Newest(va)
		noted := attach.NotedTarget(va)
		e, ok := h.memory.Queue.Look(queue.AttachmentKey(va.Name))
		waits := ok && e.Lane == queue.DetachLane && (e.State != queue.Delayed || e.Tries == 0)
		if e.State != queue.Running && h.failed[nameOfRun(queue.AttachmentKey(va.Name))] > h.due[q.run] {
			continue // it has had its try
		}
		if waits && va.Name != q.run && h.memory.Table.Look(va.Name, va.UID).Belief != volume.Unpublished && va.DeletionTimestamp != nil {
			due = append(due, placeOf(noted))
		}
	}
	if err := safety.Due(safety.Call{Method: safety.Publish, Place: placeOf(q.target), Shared: safety.Surely(q.shared)}, due); err != nil {
		h.fail(err)
	}
}

// see notes the newest VolumeAttachment that the replica has seen under a name.
func (h *exploredHost) see(o apiObject) {
	if va, ok := o.(*storagev1.VolumeAttachment); ok && va != nil {
		h.seen[va.Name] = max(h.seen[va.Name], va.UID)
	}
}

func (h *exploredHost) overlay() *cache.Overlay { return h.memory.Overlay }
