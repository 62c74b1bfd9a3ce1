package reconcile

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

type verb string

const (
	verbGet       verb = "read"
	verbList      verb = "list"
	verbNode      verb = "read the Node"
	verbPatch     verb = "patch"
	verbPublish   verb = "publish"
	verbUnpublish verb = "unpublish"
)

// request is a request to the API server or a call of the driver, as plain data.
type request struct {
	run      string // of the entry that sends it
	verb     verb
	resource resource
	name     string
	status   bool // the subresource
	body     string
	target   attach.Target // of a call
	shared   bool          // of a publish: the access mode is MULTI_NODE
	seen     types.UID     // of the newest VolumeAttachment that the replica has seen under the name, or under that of the run
}

func (q request) isCall() bool { return q.verb == verbPublish || q.verb == verbUnpublish }
func (q request) isRead() bool { return q.verb == verbGet || q.verb == verbList || q.verb == verbNode }

func (q request) String() string {
	switch {
	case q.isCall():
		return fmt.Sprintf("%s: %s %s@%s", q.run, q.verb, q.target.VolumeHandle, q.target.NodeID)
	case q.verb == verbNode:
		return fmt.Sprintf("%s: %s %s", q.run, q.verb, q.name)
	case q.status:
		return fmt.Sprintf("%s: %s %v %s/status", q.run, q.verb, q.resource, q.name)
	}
	return fmt.Sprintf("%s: %s %v %s", q.run, q.verb, q.resource, q.name)
}

// answer is the answer to a request.
type answer struct {
	object apiObject
	list   *storagev1.VolumeAttachmentList
	node   *corev1.Node
	err    error
}

func (a answer) String() string {
	switch {
	case a.err != nil:
		return "error: " + a.err.Error()
	case a.object != nil:
		return describe(a.object)
	case a.list != nil:
		return "rv " + a.list.ResourceVersion
	case a.node != nil:
		return fmt.Sprintf("Node %s uses %v", a.node.Name, a.node.Status.VolumesInUse)
	}
	return "done"
}

// appendKey appends what makes a difference to who gets the answer.
func (a answer) appendKey(k *exploredKey) {
	switch {
	case a.err != nil:
		k.add(a.err.Error())
	case a.list != nil:
		k.version(attachments, a.list.ResourceVersion)
	case a.node != nil:
		k.add(a.String())
	default:
		k.object(a.object)
	}
}

// asked is a request whose sender waits.
type asked struct {
	request
	answered chan answer
}

// inFlight has the requests of a replica that were not answered yet. It is the replica's API server and driver: a request
// waits until the world has an answer.
type inFlight struct {
	attach.Kube
	mu      sync.Mutex
	waiting map[string]*asked
	ended   bool
	sent    func(request)        // is told of each request before it leaves
	seen    map[string]types.UID // of the host
}

// runKey is the key of the run in contexts.
type runKey struct{}

// ask sends a request and waits. At the end of the replica it ends the goroutine, as the end of a process does.
func (b *inFlight) ask(ctx context.Context, q request) answer {
	q.run, _ = ctx.Value(runKey{}).(string)
	switch {
	case q.verb == verbPatch && q.resource == attachments:
		q.seen = b.seen[q.name]
	case q.verb == verbUnpublish:
		q.seen = b.seen[q.run]
	}
	a := &asked{q, make(chan answer)}
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		runtime.Goexit()
	}
	if b.waiting[q.String()] != nil {
		panic("two equal requests in flight: " + q.String())
	}
	b.waiting[q.String()] = a
	b.sent(q)
	b.mu.Unlock()
	got, ok := <-a.answered
	if !ok {
		runtime.Goexit()
	}
	return got
}

// take takes a request out that gets an answer now.
func (b *inFlight) take(name string) *asked {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.waiting[name]
	delete(b.waiting, name)
	return a
}

// requests returns the requests that wait, by name.
func (b *inFlight) requests() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []request
	for _, name := range slices.Sorted(maps.Keys(b.waiting)) {
		all = append(all, b.waiting[name].request)
	}
	return all
}

func (b *inFlight) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, a := range b.waiting {
		close(a.answered)
	}
	clear(b.waiting)
}

func (b *inFlight) CoreV1() corev1client.CoreV1Interface          { return exploredCore{nil, b} }
func (b *inFlight) StorageV1() storagev1client.StorageV1Interface { return exploredStorage{nil, b} }

type exploredCore struct {
	corev1client.CoreV1Interface
	inFlight *inFlight
}

func (c exploredCore) PersistentVolumes() corev1client.PersistentVolumeInterface {
	return exploredVolumes{explored: explored[*corev1.PersistentVolume]{c.inFlight, volumes}}
}

func (c exploredCore) Nodes() corev1client.NodeInterface { return exploredKubelets{nil, c.inFlight} }

// exploredKubelets returns the Nodes, which are read and never watched.
type exploredKubelets struct {
	corev1client.NodeInterface
	inFlight *inFlight
}

func (k exploredKubelets) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	a := k.inFlight.ask(ctx, request{verb: verbNode, name: name})
	return a.node, a.err
}

type exploredStorage struct {
	storagev1client.StorageV1Interface
	inFlight *inFlight
}

func (s exploredStorage) VolumeAttachments() storagev1client.VolumeAttachmentInterface {
	return exploredAttachments{explored: explored[*storagev1.VolumeAttachment]{s.inFlight, attachments}}
}

func (s exploredStorage) CSINodes() storagev1client.CSINodeInterface {
	return exploredNodes{explored: explored[*storagev1.CSINode]{s.inFlight, nodes}}
}

// explored is the client of one resource.
type explored[T apiObject] struct {
	inFlight *inFlight
	resource resource
}

func (e explored[T]) do(ctx context.Context, q request) (none T, err error) {
	q.resource = e.resource
	a := e.inFlight.ask(ctx, q)
	if a.err != nil {
		return none, a.err
	}
	return a.object.DeepCopyObject().(T), nil
}

func (e explored[T]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	return e.do(ctx, request{verb: verbGet, name: name})
}

func (e explored[T]) Patch(ctx context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions, sub ...string) (T, error) {
	return e.do(ctx, request{verb: verbPatch, name: name, body: string(data), status: len(sub) > 0})
}

type (
	exploredVolumes struct {
		corev1client.PersistentVolumeInterface
		explored[*corev1.PersistentVolume]
	}
	exploredAttachments struct {
		storagev1client.VolumeAttachmentInterface
		explored[*storagev1.VolumeAttachment]
	}
	exploredNodes struct {
		storagev1client.CSINodeInterface
		explored[*storagev1.CSINode]
	}
)

// The methods of both embedded fields are ambiguous: these say which count.

func (e exploredVolumes) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.PersistentVolume, error) {
	return e.explored.Get(ctx, name, o)
}

func (e exploredVolumes) Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*corev1.PersistentVolume, error) {
	return e.explored.Patch(ctx, name, t, data, o, sub...)
}

func (e exploredAttachments) Get(ctx context.Context, name string, o metav1.GetOptions) (*storagev1.VolumeAttachment, error) {
	return e.explored.Get(ctx, name, o)
}

func (e exploredAttachments) Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (*storagev1.VolumeAttachment, error) {
	return e.explored.Patch(ctx, name, t, data, o, sub...)
}

func (e exploredAttachments) List(ctx context.Context, _ metav1.ListOptions) (*storagev1.VolumeAttachmentList, error) {
	a := e.inFlight.ask(ctx, request{verb: verbList, resource: attachments})
	return a.list, a.err
}

func (e exploredNodes) Get(ctx context.Context, name string, o metav1.GetOptions) (*storagev1.CSINode, error) {
	return e.explored.Get(ctx, name, o)
}

func (e exploredNodes) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*storagev1.CSINode, error) {
	panic("the hub must not write CSINodes")
}

// exploredSession is the session of a replica.
type exploredSession struct {
	steadySession
	inFlight *inFlight
}

func (s exploredSession) Info() csiclient.Info {
	return csiclient.Info{Name: exploredDriver, Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
}

func (s exploredSession) ControllerPublishVolume(ctx context.Context, q *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	mode := q.GetVolumeCapability().GetAccessMode().GetMode()
	a := s.inFlight.ask(ctx, request{verb: verbPublish, target: attach.Target{VolumeHandle: q.GetVolumeId(), NodeID: q.GetNodeId()},
		shared: mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER})
	if a.err != nil {
		return nil, a.err
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (s exploredSession) ControllerUnpublishVolume(ctx context.Context, q *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	a := s.inFlight.ask(ctx, request{verb: verbUnpublish, target: attach.Target{VolumeHandle: q.GetVolumeId(), NodeID: q.GetNodeId()}})
	if a.err != nil {
		return nil, a.err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// nameOfRun names the run of an entry.
func nameOfRun(key queue.Key) string {
	switch key.Kind {
	case queue.DanglingKind:
		return fmt.Sprintf("dangling %s@%s", key.Target.VolumeHandle, key.Target.NodeID)
	case queue.FinalizerKind:
		return "finalizer " + key.Name
	}
	return key.Name
}
