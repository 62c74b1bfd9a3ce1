package drift

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
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

// Session is a connection to a driver that lists its volumes with their nodes.
type Session interface {
	ListVolumes(ctx context.Context, pageSize int) (listed csiclient.Published, took time.Duration, err error)
}

// View is what this process knows of the driver's objects, its own writes included: a *cache.Overlay.
type View interface {
	AttachmentsOfDriver(driver string) []*storagev1.VolumeAttachment
	Newest(*storagev1.VolumeAttachment) *storagev1.VolumeAttachment
	CachedInputs(*storagev1.VolumeAttachment) attach.Inputs
}

// Queue is the work for the driver.
type Queue interface {
	// Listing notes from now on at which targets work begins and ends, until end is called. changed reports whether there was
	// work at a target since, or is now: what a listing says about it may be out of date then.
	Listing() (changed func(attach.Target) bool, end func())
	// Has reports whether there is work for a VolumeAttachment.
	Has(attachment string) bool
	// Listed takes a listing that has begun at a time. has returns whether it has a volume with its nodes, and whether at a node ID.
	Listed(has func(attach.Target) (listed, there bool), began time.Time)
}

// Actions are what follows from a listing.
type Actions interface {
	// Missing is called for each second listing in a row that does not have an attached volume on its node.
	Missing(va *storagev1.VolumeAttachment, isNew bool)
	// Present is called if a listing has the volume of a VolumeAttachment, and work for it or its attachError says otherwise.
	Present(context.Context, *storagev1.VolumeAttachment)
	// Dangling is called if the second listing in a row has a dangling volume. kept is why it must not be detached; "": it may be.
	Dangling(d *Dangling, kept string)
}

// Watch compares the list of one driver during one term of its lease.
type Watch struct {
	Driver   func() attach.Driver
	Settings func() registry.Drift
	Session  func() Session // nil: there is none now
	Cluster  *cache.Cluster
	Nodes    *Nodes
	View     View
	// KnowsAll reports whether the view has every VolumeAttachment that a former leader may have worked for.
	KnowsAll func(context.Context) (bool, error)
	Queue    Queue
	Actions  Actions
	Logger   klog.Logger

	lag      float64 // of the first listing, in intervals: drivers do not list all at once
	looked   bool    // there was a listing
	took     time.Duration
	failed   int // listings in a row
	problem  loglimit.Problem
	confirm  bool              // a difference needs another listing
	missing  map[types.UID]int // listings in a row that have shown it
	dangling map[attach.Target]int

	mu       sync.Mutex
	reported map[attach.Target]Reported // replaced by Check, guarded by mu
}

// Pause returns the time from one listing to the next, and to the first. It doubles with each listing that fails.
func (w *Watch) Pause(interval time.Duration) time.Duration {
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
	before    map[string]*storagev1.VolumeAttachment // by name, those from before the first page; compare leaves those that are gone since
	after     []*storagev1.VolumeAttachment
	changed   func(attach.Target) bool
	nodes     map[string][]string // names, by node ID
	// claimed are the targets that a VolumeAttachment surely asks for, claimants the VolumeAttachments by the node IDs at which they may
	// ask for a volume; "": at any.
	claimed   map[attach.Target]bool
	claimants map[string][]*storagev1.VolumeAttachment
}

// Check lists the volumes once and acts on the differences that the listing confirms.
func (w *Watch) Check(ctx context.Context) {
	w.looked = true
	session, settings, began := w.Session(), w.Settings(), time.Now()
	if session == nil {
		return
	}
	l := listing{driver: w.Driver(), before: map[string]*storagev1.VolumeAttachment{}}
	for _, va := range w.View.AttachmentsOfDriver(l.driver.Name) {
		if !w.Queue.Has(va.Name) {
			l.before[va.Name] = va
		}
	}
	var end func()
	l.changed, end = w.Queue.Listing()
	defer end()
	bounded, cancel := context.WithTimeout(ctx, longestListing)
	defer cancel()
	var err error
	l.published, w.took, err = session.ListVolumes(bounded, settings.PageSize)
	if err != nil {
		if w.failed++; ctx.Err() == nil && w.problem.IsDue(err.Error(), time.Now()) {
			w.Logger.Info("ListVolumes failed, so drift was not checked, will retry", "err", err)
		}
		return
	}
	w.failed, w.confirm = 0, false
	l.driver, l.after = w.Driver(), w.View.AttachmentsOfDriver(l.driver.Name)
	w.Queue.Listed(func(at attach.Target) (listed, there bool) {
		nodes, listed := l.published[l.driver.ListedHandle(at.VolumeHandle, at.NodeID)]
		return listed && !nodes.Unknown, nodes.Has(at.NodeID)
	}, began)
	w.compare(ctx, l)
	w.findClaimants(&l)
	w.actOnDangling(ctx, l)
}

// next returns how many listings in a row have shown each difference, after another one that shows some.
func next[K comparable](listings map[K]int, found []K) map[K]int {
	next := make(map[K]int, len(found))
	for _, key := range found {
		next[key] = listings[key] + 1
	}
	return next
}
