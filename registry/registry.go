package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Defaults of Options.
const (
	defaultSettle = 10 * time.Second
	defaultFirst  = 30 * time.Second
)

// Options of a Registry.
type Options struct {
	// File is the drivers that are listed one by one, and the rules for all others.
	// Required.
	File ConfigSource
	// CSIDrivers makes the Source that runs while discovery.csiDrivers is enabled.
	// Required.
	CSIDrivers func() Source
	// Sockets makes the Source that runs while the glob is in discovery.sockets.
	// Required.
	Sockets func(glob string) (Source, error)
	// Settle is how long a change is held back at most while a Source that was added
	// has not sent its first set. Zero means 10 seconds.
	Settle time.Duration
	// First is how long the first Snapshot is held back at most for that: a Source that
	// cannot see anything, as one without permission, must not keep the drivers of all
	// others from being served. Zero means 30 seconds.
	First time.Duration
}

// Registry says which drivers are to be served, from what its sources see. Which
// sources there are beside the file is said in the file, and follows it.
type Registry struct {
	options Options
	updates chan Snapshot // holds the latest one; Run alone sends

	mu        sync.Mutex
	conflicts []Conflict // guarded by mu
}

// New checks the options. It starts nothing.
func New(o Options) (*Registry, error) {
	if o.File == nil || o.CSIDrivers == nil || o.Sockets == nil {
		return nil, errors.New("registry: Options.File, CSIDrivers and Sockets must all be set")
	}
	if o.Settle < 0 || o.First < 0 {
		return nil, fmt.Errorf("registry: Options.Settle is %v and First %v, they must not be negative", o.Settle, o.First)
	}
	if o.Settle == 0 {
		o.Settle = defaultSettle
	}
	if o.First == 0 {
		o.First = defaultFirst
	}
	return &Registry{options: o, updates: make(chan Snapshot, 1)}, nil
}

// Updates is where Run sends what is to be served: the latest Snapshot, of those
// before it some may be missed. The first one comes after every source has sent its
// first set, so that it is complete, or after Options.First, which is logged. There is
// one receiver. It is never closed.
func (r *Registry) Updates() <-chan Snapshot { return r.updates }

// Conflicts returns what was found and is not served, as of the latest Snapshot,
// in a fixed order.
func (r *Registry) Conflicts() []Conflict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.conflicts)
}

// Run runs the sources and sends to Updates until ctx ends. It returns nil then,
// after every source has ended. A Registry can run once.
func (r *Registry) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	feeds := newFeeds(r.options)
	defer feeds.wait()
	defer cancel()
	feeds.start(ctx, fileFeed, r.options.File)
	patience := newPatience(r.options)
	defer patience.stop()
	var last Snapshot // nil: none was sent
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-feeds.messages:
			if started := feeds.take(ctx, m, r.options.File.Config()); started {
				patience.again()
			}
		case <-patience.settle.C:
			patience.settled = true
			complain(ctx, feeds.missing(), last != nil)
		case <-patience.first.C:
			patience.begun = true
			if last == nil {
				complain(ctx, feeds.missing(), true)
			}
		}
		// Without a Config there is nothing to decide by.
		if feeds.config != nil && (len(feeds.missing()) == 0 || patience.over(last == nil)) {
			last = r.publish(ctx, last, feeds)
		}
	}
}

// complain logs which sources are waited for, or, if anything is served, done without.
func complain(ctx context.Context, missing []string, served bool) {
	if len(missing) > 0 {
		klog.FromContext(ctx).Info("Sources have not said yet what they see", "sources", missing, "othersServed", served)
	}
}

// publish decides on what the sources see and sends it if it differs from the
// last Snapshot. It returns the Snapshot that was sent last.
func (r *Registry) publish(ctx context.Context, last Snapshot, feeds *feeds) Snapshot {
	snapshot, conflicts := merge(feeds.config, feeds.found())
	r.mu.Lock()
	was := r.conflicts
	r.conflicts = conflicts
	r.mu.Unlock()
	logger := klog.FromContext(ctx)
	for _, c := range newIn(conflicts, was) {
		logger.Info("Conflict: a driver that was found is not served", "driver", c.Driver, "found", c.Loser, "served", c.Winner, "reason", c.Reason)
	}
	for _, c := range newIn(was, conflicts) {
		logger.Info("A conflict is gone", "driver", c.Driver, "found", c.Loser, "reason", c.Reason)
	}
	if last != nil && maps.Equal(last, snapshot) {
		return last
	}
	select {
	case <-r.updates: // nobody has seen it, and the new one replaces it
	default:
	}
	r.updates <- snapshot // there is room: nobody else sends
	return snapshot
}
