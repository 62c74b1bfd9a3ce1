// Package reconcile takes each VolumeAttachment of one driver to what its spec says: hub/doc.go is its map. A Worker works for one
// term of the lease; a Router hands it the events of its driver.
package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/drift"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Worker does the work for one driver during one term of its lease: it attaches and detaches its volumes. It shares nothing with
// other drivers except the cluster's caches, which it only reads.
type Worker struct {
	Options
	Drift           *drift.Watch
	term            *lease.Term
	log             *loglimit.Limiter
	budget          *rate.Limiter // of writes to the Kubernetes API
	finalizerWrites singleflight.Group
	nodes           drift.Nodes

	conflictLog loglimit.Problem
	stuck       map[types.UID]stuckVolume // VolumeAttachments at the last ReportOverdue, which alone uses it

	// See checkCapability: how often a VolumeAttachment that records a call was seen, and what that was when none was found.
	callsSeen, noCallsAt atomic.Int64
	noAttach             atomic.Bool // attachRequired was false at the last backfill

	collection atomic.Pointer[string] // resourceVersion of all VolumeAttachments when first read in this term, see knowsAll
}

// New begins the work of a term. The Queue stays shut.
func New(o Options, term *lease.Term) *Worker {
	w := &Worker{
		Options: o,
		term:    term,
		log:     loglimit.New(logBurst, logEvery),
		budget:  rate.NewLimiter(rate.Inf, 0),
	}
	w.nodes.Read = o.Cluster.ReadNode
	w.Drift = &drift.Watch{
		Session: func() drift.Session { return o.Session() },
		Decider: o.Decider, Settings: o.Settings, Cluster: o.Cluster, Overlay: o.Overlay, Table: o.Table, Nodes: &w.nodes, KnowsAll: w.knowsAll,
		DestinationOf: w.destinationOf, Writer: w.Writer, Metrics: o.Metrics, Warn: w.Warn,
		Log: w.logLine, Logger: o.Logger, VolumeLogger: w.VolumeLogger, DanglingLogger: w.DanglingLogger,
	}
	o.Queue.Begin()
	w.SetLimits(o.Settings())
	return w
}

// SetLimits copies the settings into the queue and the write budget. Items that wait stay.
func (w *Worker) SetLimits(s registry.Settings) {
	w.Queue.SetLimits(queue.Limits{Workers: s.Workers, PerNode: s.MaxPerNode, Parallel: s.ParallelMultiNode,
		Pause: func(refused int) time.Duration { return backoff(s.Retry, refused, nil, jitter) }})
	limit, burst := rate.Inf, 0
	if s.KubeAPI.QPS > 0 {
		limit, burst = rate.Limit(s.KubeAPI.QPS), s.KubeAPI.BurstOrDefault()
	}
	// The burst first: without a limit the budget fills up at once, so that a driver does not begin with an
	// empty budget.
	w.budget.SetBurst(burst)
	w.budget.SetLimit(limit)
}

// Memory is what this process remembers of a driver's volumes: its publications, and its writes that the
// caches do not show yet. It outlives the terms and the connections of the driver. Otherwise a new term would call the
// driver once more for the operations that the last term has just done.
type Memory struct {
	Table   *volume.Table
	Queue   *queue.Queue
	Overlay *cache.Overlay
}

// NewMemory returns the Memory of a driver of which nothing is known.
func NewMemory(logger klog.Logger, driver string, cluster *cache.Cluster) Memory {
	table := volume.NewTable(attach.Finalizer(driver))
	return Memory{Table: table, Queue: table.Queue, Overlay: cache.NewOverlay(logger, cluster)}
}

// Session is a connection to a driver.
type Session interface {
	attach.Controller
	// CallBegins notes that a call for an item begins, and Answered that the driver has answered a call.
	CallBegins(queue.Key)
	Answered()
	// Ended returns a context that ends when the session takes no further call. Calls in flight may go on.
	Ended() context.Context
	ListVolumes(ctx context.Context, pageSize int) (listed csiclient.Published, took time.Duration, err error)
	Info() csiclient.Info
	// UnansweredSince returns since when the driver has answered no call, zero if it has answered all. A call counts while its
	// item is there.
	UnansweredSince(has func(queue.Key) bool) time.Time
	// Since returns when the use of the session began.
	Since() time.Time
}

// Options of a Worker. The functions must not block, and may be called by several goroutines at once.
type Options struct {
	Memory
	Driver     string
	Cluster    *cache.Cluster
	Kube       attach.Kube
	Events     eventrecord.EventRecorder // nil: there are none
	Metrics    *status.DriverMetrics
	Logger     klog.Logger   // names the driver
	WriteLimit time.Duration // how long a write may take; 0: no limit
	Redactor   *attach.Redactor
	Settings   func() registry.Settings                                              // the present ones
	Decider    func() attach.Driver                                                  // the present one
	Session    func() Session                                                        // the latest one, which may have ended; nil: there was none
	Away       func() error                                                          // why the driver cannot be called, nil if it can
	ReadSecret func(context.Context, corev1.SecretReference) (*corev1.Secret, error) // an error too if volumes of the driver may not name it
	Failed     func(err error, f status.Failure, took time.Duration)                 // a try has failed
	Conflict   func(status.ForeignWriter)                                            // another attacher has written
}
