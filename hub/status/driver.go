package status

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Driver is the state of one served driver at one moment. JSON omits what is empty or unknown, except
// Name, State, Up, Mode, Lanes and the counts.
type Driver struct {
	Name   string    `json:"name"`
	State  string    `json:"state"`            // "Ready", "Connecting", ...
	Reason string    `json:"reason,omitempty"` // why it is in this state, for people
	Since  time.Time `json:"since,omitzero"`   // of the state
	Health Health    `json:"health,omitzero"`  // set by this package, not by the Source
	Up     bool      `json:"up"`               // it is connected and can be called
	Mode   string    `json:"mode"`             // "active", "observe" or "paused"
	// DownSince is when the driver could last be called, or when the hub began to serve it; zero if Up. A change
	// of the lease does not change it.
	DownSince time.Time `json:"downSince,omitzero"`
	// UnansweredSince is when the first call began after the driver's last answer; zero if it answered all
	// calls. A timeout is no answer.
	UnansweredSince time.Time `json:"unansweredSince,omitzero"`

	Source   string `json:"source,omitempty"` // where it was learned: "drivers.yaml:14"
	Endpoint string `json:"endpoint,omitempty"`
	// Version and Capabilities are what the driver reported at the last connection.
	Version      string   `json:"version,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// RecordedCalls is the number of VolumeAttachments that record a call to a driver without
	// PUBLISH_UNPUBLISH_VOLUME: its endpoint may be wrong. 0 for other drivers.
	RecordedCalls int `json:"recordedCalls,omitempty"`
	// NoAttach: attachRequired of its CSIDriver is false although it has PUBLISH_UNPUBLISH_VOLUME. Its volumes are detached.
	NoAttach bool     `json:"noAttach,omitempty"`
	Settings Settings `json:"settings,omitzero"`

	Lease   Lease `json:"lease,omitzero"`
	Workers int   `json:"workers"` // the limit of calls in flight
	Busy    int   `json:"busy"`    // calls in flight
	// Lanes has a lane for each of Attach, Detach, Drift and Finalizer. If no replica of the hub works for the
	// driver, they have the work that waits for it.
	Lanes           []Lane    `json:"lanes"`
	ConnectionError Failure   `json:"connectionError,omitzero"` // the last one, also if the connection is back
	Failures        []Failure `json:"failures,omitempty"`       // the last few of operations, the latest first

	// Dangling are the volumes that are or may be attached without a VolumeAttachment, and that the hub must still detach
	// there; the oldest first, at most MostDangling. Only the replica that works for the driver has them.
	Dangling      []DanglingPublication `json:"dangling,omitempty"`
	DanglingCount int                   `json:"danglingCount,omitempty"` // all of them

	// FullNodes are the nodes to which the driver can attach no more volumes, the longest line first, at most
	// MostFullNodes. Only the replica that works for the driver has them.
	FullNodes          []FullNode `json:"fullNodes,omitempty"`
	WaitingForCapacity int        `json:"waitingForCapacity,omitempty"` // attaches that wait for a place on a full node

	Observed  *Observed `json:"observed,omitempty"`  // only in mode observe
	Checklist []Check   `json:"checklist,omitempty"` // only in mode observe, and of a driver that is requested alone

	ForeignWriter ForeignWriter       `json:"foreignWriter,omitzero"` // the last one
	Fault         diagnosis.Diagnosis `json:"fault,omitzero"`         // what is wrong with its socket while it is up; zero for nothing
}

// Settings are the settings of a driver that a diagnosis depends on, with the names of drivers.yaml.
type Settings struct {
	Timeout    metav1.Duration `json:"timeout"`
	MaxPerNode int             `json:"maxPerNode"` // 0: no limit
	StuckAfter metav1.Duration `json:"stuckAfter"`
}

// Operation is what a lane is for.
type Operation string

const (
	Attach    Operation = "attach"
	Detach    Operation = "detach"
	Drift     Operation = "drift"     // attaches again what the storage system has lost
	Finalizer Operation = "finalizer" // removes finalizers from PersistentVolumes; no call
)

// Lane is the queue of one operation.
type Lane struct {
	Operation    Operation `json:"operation"`
	Queued       int       `json:"queued"`  // waiting for a worker, or for other work on the volume
	Delayed      int       `json:"delayed"` // waiting for the next try after a failure
	Running      int       `json:"running"`
	Failing      int       `json:"failing"`               // of all these, those whose last try failed, also while the next one runs; not those of Stuck
	Workers      int       `json:"workers"`               // the limit of Running now, with lent workers
	OldestSince  time.Time `json:"oldestSince,omitzero"`  // since when the oldest work that does not run is due; zero if there is none
	FailingSince time.Time `json:"failingSince,omitzero"` // since when the oldest of Failing is due
	OldestCall   Call      `json:"oldestCall,omitzero"`   // in flight; zero if there is none
	Stuck        int       `json:"stuck"`                 // VolumeAttachments without success for longer than stuckAfter
	StuckSince   time.Time `json:"stuckSince,omitzero"`   // when the operation of the oldest of these was required
}

// Call is a call to the driver that is in flight.
type Call struct {
	Method           string    `json:"method"` // "ControllerPublishVolume" or "ControllerUnpublishVolume"
	Since            time.Time `json:"since"`
	VolumeAttachment string    `json:"volumeAttachment,omitempty"` // empty if it is gone
}

// Lane returns the lane of an operation, an empty one if there is none.
func (d Driver) Lane(op Operation) Lane {
	if i := slices.IndexFunc(d.Lanes, func(l Lane) bool { return l.Operation == op }); i >= 0 {
		return d.Lanes[i]
	}
	return Lane{Operation: op}
}

// Work returns what the lanes of Attach, Detach and Drift must do as one lane, without an operation. Nobody waits
// for the lane of Finalizer.
func (d Driver) Work() Lane {
	var sum Lane
	for _, l := range d.Lanes {
		if l.Operation != Finalizer {
			sum = sum.With(l)
		}
	}
	return sum
}

// With returns the lane with what another one must do. The workers stay its own.
func (l Lane) With(more Lane) Lane {
	l.Queued += more.Queued
	l.Delayed += more.Delayed
	l.Running += more.Running
	l.Failing += more.Failing
	l.Stuck += more.Stuck
	l.OldestSince = earliest(l.OldestSince, more.OldestSince)
	l.FailingSince = earliest(l.FailingSince, more.FailingSince)
	l.StuckSince = earliest(l.StuckSince, more.StuckSince)
	if c := more.OldestCall; l.OldestCall.Since.IsZero() || !c.Since.IsZero() && c.Since.Before(l.OldestCall.Since) {
		l.OldestCall = c
	}
	return l
}

// earliest returns the earlier of two times, without regard to zero times.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Stuck returns how many VolumeAttachments are stuck.
func (d Driver) Stuck() int { return d.Work().Stuck }

// Lease is the lease of a driver. Without leader election it is zero, except Mine.
type Lease struct {
	Name      string    `json:"name,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Holder    string    `json:"holder,omitempty"` // identity; empty if nobody holds it, or if it has expired
	Since     time.Time `json:"since,omitzero"`   // when the holder took it
	Mine      bool      `json:"mine"`             // this process may work for the driver
	// LastHolder is who let the lease expire, and Renewed when it was renewed last, by the clock of its holder.
	// LastHolder is empty if the lease is held or was released.
	LastHolder string    `json:"lastHolder,omitempty"`
	Renewed    time.Time `json:"renewed,omitzero"`
	Renews     bool      `json:"renews,omitempty"` // this process sees the holder renew the lease
	// Duration is for how long it is held after it was renewed, for anyone who has read its object; else 0.
	Duration time.Duration `json:"-"`
}

// Failure is an error with its time. The text may be a driver's own: hostile.
type Failure struct {
	Time             time.Time       `json:"time"`
	Operation        Operation       `json:"operation,omitempty"`        // empty for one of the connection
	VolumeAttachment string          `json:"volumeAttachment,omitempty"` // the name; empty for one of the connection
	Text             string          `json:"text"`
	Cause            diagnosis.Cause `json:"cause,omitzero"` // of Text, for programs; zero if not known
}

// MostDangling is how many dangling publications of a driver are shown.
const MostDangling = 100

// DanglingPublication is a volume that is or may be attached to a node without a VolumeAttachment: the VolumeAttachment
// was deleted without its finalizer, or has another node ID by now.
type DanglingPublication struct {
	VolumeHandle     string    `json:"volumeHandle"`
	NodeID           string    `json:"nodeID"`
	Node             string    `json:"node,omitempty"`
	PersistentVolume string    `json:"persistentVolume,omitempty"`
	VolumeAttachment string    `json:"volumeAttachment"` // that left it there; gone, or at another node ID
	Since            time.Time `json:"since"`            // when this process learned of it
	Tries            int       `json:"tries,omitempty"`  // failed in a row
	NextTry          time.Time `json:"nextTry,omitzero"`
	LastError        string    `json:"lastError,omitempty"` // may be a driver's own text: hostile
	// FromList: only the driver says that the volume is published there. VolumeAttachment is empty then.
	FromList bool `json:"listed,omitempty"`
	// ReportOnly: the hub does not detach it, because drift.unexpected is report or, if there is a LastError, for that reason.
	ReportOnly bool `json:"reportOnly,omitempty"`
}

const (
	MostFullNodes = 20 // full nodes of a driver that are shown
	MostInLine    = 5  // of the line of each
)

// FullNode is a node on which ControllerPublishVolume failed with ResourceExhausted: the driver can attach no more
// volumes there. The attaches to the node wait in a line until a volume is detached from it, or its CSINode changes.
type FullNode struct {
	Node  string `json:"node"`
	Limit int    `json:"limit,omitempty"` // allocatable.count of the driver in the CSINode; 0 if it is not known
	// Attached counts the VolumeAttachments of the driver that are attached to the node. It is below Limit if something
	// else has places there: volumes without a VolumeAttachment, or of other drivers.
	Attached int       `json:"attached"`
	Since    time.Time `json:"since"`
	Waiting  int       `json:"waiting"`          // attaches in the line
	Line     []string  `json:"line"`             // names of the first VolumeAttachments in the line, at most MostInLine
	NextTry  time.Time `json:"nextTry,omitzero"` // when the next one is tried without a sign of a free place
}

// Observed counts how the hub's decisions in mode observe compare with what another attacher did.
type Observed struct {
	Agreed          int            `json:"agreed"`
	WouldHaveFailed int            `json:"wouldHaveFailed"`
	Differs         int            `json:"differs"`
	Pending         int            `json:"pending"` // not known yet
	Disagreements   []Disagreement `json:"disagreements,omitempty"`
}

// Disagreement is one VolumeAttachment for which the hub would have had another result.
type Disagreement struct {
	VolumeAttachment string    `json:"volumeAttachment"`
	Node             string    `json:"node,omitempty"`
	Agreement        Agreement `json:"agreement"`
	Reason           string    `json:"reason"`
	Since            time.Time `json:"since,omitzero"`
}

// Agreement is how a decision compares with what became of a VolumeAttachment.
type Agreement string

const (
	Agreed          Agreement = "agreed"
	WouldHaveFailed Agreement = "would_have_failed"
	Differs         Agreement = "differs"
)

// Check is one condition for serving a driver.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Text string `json:"text,omitempty"` // what was found; may have a driver's own text: hostile
	// Actions say what to do, as those of a diagnosis; empty if OK, or if there is nothing to do.
	Actions []string `json:"actions,omitempty"`
}

// ForeignWriter is another attacher that wrote a VolumeAttachment of a driver that is active here.
type ForeignWriter struct {
	Manager          string    `json:"manager"` // as in metadata.managedFields
	Time             time.Time `json:"time"`
	VolumeAttachment string    `json:"volumeAttachment"`
}
