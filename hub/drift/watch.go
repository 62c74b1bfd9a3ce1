package drift

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// confirmAfter is the time until the listing that may confirm a difference.
	confirmAfter = 10 * time.Second
	// longestListing bounds a listing: a driver may return pages without end.
	longestListing = time.Hour
	// listShare is 10: a driver spends at most a tenth of the time on listings.
	listShare = 10
	// longestPause is the longest pause after listings that fail: a listing may be what ends the driver's process.
	longestPause = time.Hour
)

// Watch compares the list of one driver during one term of its lease, and acts on the differences.
type Watch struct {
	Decider  func() attach.Driver
	Settings func() registry.Settings
	Session  func() Session // nil: there is none now
	Cluster  *cache.Cluster
	Overlay  *cache.Overlay
	Table    *volume.Table
	Nodes    *Nodes
	// KnowsAll reports whether the cache has every VolumeAttachment that a former leader may have worked for.
	KnowsAll      func(context.Context) (bool, error)
	DestinationOf func(*storagev1.VolumeAttachment, attach.Operation) queue.Destination
	Writer        func() attach.Attacher
	Metrics       *status.DriverMetrics
	Warn          func(object runtime.Object, reason, message string) // records an Event

	// Log logs a line with Logger, VolumeLogger or DanglingLogger, at a bounded rate if it is important.
	Log            func(l klog.Logger, important bool, message string, keysAndValues ...any)
	Logger         klog.Logger
	VolumeLogger   func(*storagev1.VolumeAttachment) klog.Logger
	DanglingLogger func(volume.Dangling) klog.Logger

	lag     float64 // of the first listing, in intervals: drivers do not list all at once
	looked  bool    // there was a listing
	took    time.Duration
	failed  int // listings in a row
	problem loglimit.Problem
	confirm bool              // a difference needs another listing
	missing map[types.UID]int // listings in a row that have shown it

	mu       sync.Mutex
	dangling map[attach.Target]*dangling // as the driver lists them; Check replaces the map, guarded by mu
}

// Session is a connection to a driver that lists its volumes with their nodes.
type Session interface {
	ListVolumes(ctx context.Context, pageSize int) (listed csiclient.Published, took time.Duration, err error)
	Ended() context.Context // ends when it takes no further call
}

// driftDetected is the reason of the Events.
const driftDetected = "DriftDetected"

// Pause returns the time from one listing to the next, and to the first. It doubles with each listing that fails.
func (w *Watch) Pause(s registry.Settings) time.Duration {
	interval := s.Drift.Interval
	switch {
	case interval == 0: // off
		return math.MaxInt64
	case !w.looked:
		w.lag = cmp.Or(w.lag, rand.Float64())
		return time.Duration(w.lag * float64(interval))
	case w.confirm:
		interval = min(interval, confirmAfter)
	}
	if w.failed > 0 {
		interval = max(interval, min(interval<<min(w.failed, 16), longestPause))
	}
	return max(interval, listShare*w.took)
}

// listing is one listing, with what it is compared with.
type listing struct {
	driver    attach.Driver
	published csiclient.Published
	before    map[string]*storagev1.VolumeAttachment // by name, those without work before the first page; compare takes out what has not changed
	after     []*storagev1.VolumeAttachment
	nodes     map[string][]string // names, by node ID
	// named are the targets that a VolumeAttachment surely needs, attachments the VolumeAttachments by the node IDs at which they may
	// need a volume; "": at any.
	named       map[attach.Target]bool
	attachments map[string][]*storagev1.VolumeAttachment
	volumes     map[string][]*attach.Volume // that may be at the targets, by attach.Driver.HandleKey
	knowsAll    bool
}

// Check lists the volumes once and acts on the differences that the listing confirms.
func (w *Watch) Check(ctx context.Context) {
	w.looked = true
	session, began := w.Session(), time.Now()
	l := listing{driver: w.Decider(), before: map[string]*storagev1.VolumeAttachment{}}
	if session == nil || session.Ended().Err() != nil || !l.driver.Capabilities.ListPublishedNodes {
		return
	}
	for _, va := range w.Overlay.AttachmentsOfDriver(l.driver.Name) {
		if !w.Table.Queue.Has(queue.AttachmentKey(va.Name)) {
			l.before[va.Name] = va
		}
	}
	w.Table.Listing(true)
	defer w.Table.Listing(false)
	bounded, cancel := context.WithTimeout(ctx, longestListing)
	defer cancel()
	var err error
	l.published, w.took, err = session.ListVolumes(bounded, w.Settings().Drift.PageSize)
	if err != nil {
		if w.failed++; ctx.Err() == nil && w.problem.IsDue(err.Error(), time.Now()) {
			w.Logger.Info("ListVolumes failed, so drift was not checked, will retry", "err", err)
		}
		return
	}
	w.failed, w.confirm = 0, false
	l.driver, l.after = w.Decider(), w.Overlay.AttachmentsOfDriver(l.driver.Name)
	w.endDangling(l, began)
	w.compare(ctx, l)
	w.checkDangling(ctx, l)
}

// endDangling ends the dangling publications that a listing does not show any more, and those that the hub must only report by now.
func (w *Watch) endDangling(l listing, began time.Time) {
	has := func(at attach.Target) (listed, there bool) {
		nodes, listed := l.published[l.driver.ListedHandle(at.VolumeHandle, at.NodeID)]
		return listed && !nodes.Unknown, nodes.Has(at.NodeID)
	}
	for _, u := range w.Table.ResolveDanglingNotInList(has, began, w.Settings().Timeout) {
		message := "ListVolumes does not report the volume of a deleted VolumeAttachment on this node, not detaching it"
		if u.FromList {
			message = "ListVolumes no longer reports the volume on this node, not detaching it"
		}
		w.Log(w.DanglingLogger(u), true, message)
	}
	if w.Settings().Drift.Unexpected != registry.UnexpectedDetach {
		w.Table.DropDanglingFromList() // the next listings report them
	}
}
