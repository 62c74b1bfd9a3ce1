package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// Kind is the kind of an item.
type Kind int8

const (
	AttachmentKind Kind = iota // a VolumeAttachment, by name
	DanglingKind               // a dangling publication, by target
	FinalizerKind              // the driver's finalizer on a PersistentVolume, by name
)

// Key names an item. There is at most one item of a key.
type Key struct {
	Kind   Kind
	Name   string        // of a VolumeAttachment or PersistentVolume
	Target attach.Target // of a dangling publication
}

// AttachmentKey is the key of a VolumeAttachment.
func AttachmentKey(name string) Key { return Key{Kind: AttachmentKind, Name: name} }

// FinalizerKey is the key of a PersistentVolume whose finalizer must perhaps be removed.
func FinalizerKey(name string) Key { return Key{Kind: FinalizerKind, Name: name} }

// DanglingKey is the key of a dangling publication.
func DanglingKey(t attach.Target) Key { return Key{Kind: DanglingKind, Target: t} }

// Destination is the volume and the node for which an item calls the driver. Without a volume handle it is not known:
// a worker must read the objects first.
type Destination struct {
	Target attach.Target
	Node   string // name of the Kubernetes node
	// Shared: calls for the volume on other nodes may be in flight at the same time, because its
	// access mode is known to be MULTI_NODE. Otherwise the call needs the volume for itself.
	Shared bool
	// Noted: the object says that the volume may be published at the target, and that the node was not full.
	Noted bool
}

// Lane is a share of a driver's workers.
type Lane int8

const (
	AttachLane Lane = iota
	DetachLane
	DriftLane     // volumes that the storage system has lost: when nothing else waits
	FinalizerLane // finalizers of PersistentVolumes: without a call, so not limited by the setting workers
	LaneCount
)

// LaneOf returns the lane of an operation.
func LaneOf(op attach.Operation) Lane {
	if op == attach.Detaching {
		return DetachLane
	}
	return AttachLane
}

// String returns the name of the lane in metrics.
func (l Lane) String() string { return [...]string{"attach", "detach", "drift", "finalizer"}[l] }

// State is the state of an item.
type State int8

const (
	Delayed State = iota // it waits until a time
	Ready                // it is in its lane, and waits for a worker
	Blocked              // it may not start; Wait is what it waits for
	Running              // a worker has it
)

// WaitKind is what an item waits for that is Ready or Blocked.
type WaitKind int8

const (
	WaitWorker   WaitKind = iota
	WaitVolume            // other calls for the volume
	WaitDetach            // a detach of the volume that goes first
	WaitNode              // other calls for the node, or a place on it
	WaitCapacity          // only in views: a place on the node, which is full
	WaitNothing           // only in views: a worker is free
)

// Wait is what an item waits for.
type Wait struct {
	Kind   WaitKind
	Detach Key    // that goes first, for WaitDetach
	Node   string // from which it detaches, for WaitDetach; "" if it is not known
	// Position is its place in the line of the node, from 1, for WaitCapacity. Only Look sets it.
	Position int
}

// Progress is how the work of an item goes.
type Progress struct {
	Lane     Lane
	State    State
	Required time.Time       // when the work was first required
	Due      time.Time       // when it runs, if it is Delayed
	Wait     Wait            // what it waits for, if it is Ready or Blocked
	Tries    int             // that have failed in a row, see Failed
	Error    string          // of the last of them
	Cause    diagnosis.Cause // of Error
	Call     Flight          // zero: none is in flight
}

// IsFailing reports whether the last try has failed, and not because the node is full.
func (p Progress) IsFailing() bool { return p.Tries > 0 && p.Wait.Kind != WaitCapacity }

// Flight is a call in flight.
type Flight struct {
	Method           string
	Since            time.Time
	VolumeAttachment string // "" for a dangling publication
}

// Item is one piece of work. The Queue's mutex guards it, except Retries, which belong to the worker that has it; the worker
// may read its Lane, Required and Tries.
type Item struct {
	Key     Key
	Retries Retries
	Progress

	dest Destination

	again  bool // Add was called during its run
	retry  bool // AddAndRetry or RetryNow was called during its run
	pauses bool // its delay is not a backoff: attaches elsewhere wait for it
	called bool // its worker has called MayCall in this run
	slot   bool // it has a slot of its node
	permit bool // to start although its node is full; it has a slot then

	detached  int    // of the node, when it got its slot
	refusedAt uint64 // the step of the Queue at which the driver refused it last because the node was full; 0: never

	// The steps of the Queue at which it last became due, last could call the driver, and last failed.
	came, served, tried uint64

	repeats int       // runs in a row at whose end the worker required another run at once
	began   time.Time // when it began to run
}

// isAdmitted reports whether the calls for its volume let an item start that does not run.
func (e *Item) isAdmitted() bool {
	return e.State == Ready || e.State == Blocked && e.Wait.Kind == WaitNode
}

const (
	// A worker may require another run of its item at once, but not twice in a row. An item that waits for an
	// event, such as the end of a connection, would keep a processor and the Kubernetes API busy until then. The
	// pause doubles each time.
	repeatPause    = 100 * time.Millisecond
	repeatPauseMax = 2 * time.Second
)

// Retries is what decides when an item is tried again, besides its Tries. It belongs to the worker that has the item.
type Retries struct {
	Operation attach.Operation // of the Tries
	Since     time.Time        // when the first of them failed
	NodeFull  int              // of the Tries, because the node was full: they make no later wait longer
	Log       loglimit.Problem // the last cause of a failed try that was logged, by the name of the cause
	ReadAnew  types.UID        // of the object, if it was read from the API server in this term

	// Session was in use when the run began. Disconnects counts sessions in a row that ended during a call for the item, and
	// LastSession is the last of them.
	Session     any
	Disconnects int
	LastSession any
	// AfterReconnect is how long a suspect waits at least after the driver is connected again.
	AfterReconnect time.Duration
}

// DisconnectsAllowed is how often in a row the connection may end during a call for one volume.
const DisconnectsAllowed = 3

// Suspect reports whether the calls for the item may be what ends the driver's process, and with it the calls for all
// other volumes. The wait of a suspect is its own: a new connection does not end it.
func (r *Retries) Suspect() bool { return r.Disconnects > DisconnectsAllowed }

// forgive forgets what has failed.
func (e *Item) forgive() { e.Retries, e.Tries, e.Error, e.Cause = Retries{}, 0, "", diagnosis.Cause{} }
