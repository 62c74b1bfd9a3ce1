package registry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// startupTimeout is how long the first Snapshot waits at most for the first set of every
	// Source. A Source that cannot see anything, as without permission, must not keep the
	// drivers of all others from being served.
	startupTimeout = 30 * time.Second
	// sourceTimeout is how long a later change waits at most for the first set of a Source
	// that was added.
	sourceTimeout = 10 * time.Second
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
}

// Registry decides which drivers are to be served, from what its sources see. The file
// names the other sources; they are started and stopped as it changes.
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
	return &Registry{options: o, updates: make(chan Snapshot, 1)}, nil
}

// Updates is where Run sends what is to be served: the latest Snapshot, of those
// before it some may be missed. The first one comes after every source has sent its
// first set, so that it is complete, or after 30 seconds, which is logged.
// There is one receiver. It is never closed.
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
	sources := newRunners(r.options)
	var file sync.WaitGroup
	defer file.Wait()
	defer sources.wait()
	defer cancel()
	file.Go(func() {
		keepRunning(ctx, r.options.File.Name(), func(ctx context.Context) error {
			return r.options.File.Run(ctx, func() { notify(sources.changed) })
		})
	})
	startup, added := time.NewTimer(startupTimeout), time.NewTimer(sourceTimeout)
	defer startup.Stop()
	defer added.Stop()
	var startupOver, addedOver bool
	var last Snapshot // nil: none was sent
	for notify(sources.changed); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-sources.changed:
			if sources.follow(ctx) {
				addedOver = false
				added.Reset(sourceTimeout)
			}
		case <-added.C:
			addedOver = true
			logMissing(ctx, sources.missing(), last != nil)
		case <-startup.C:
			startupOver = true
			if last == nil {
				logMissing(ctx, sources.missing(), true)
			}
		}
		timedOut := startupOver
		if last != nil {
			timedOut = addedOver
		}
		found := sources.found() // every time: it remembers deleted objects
		// Without a Config there is nothing to decide by.
		if sources.config != nil && (timedOut || len(sources.missing()) == 0) {
			last = r.publish(ctx, last, sources.config, found)
		}
	}
}

// logMissing logs the sources that have not reported yet; served tells whether
// the drivers of the others are served without them.
func logMissing(ctx context.Context, missing []string, served bool) {
	if len(missing) > 0 {
		klog.FromContext(ctx).Info("Sources have not reported yet", "sources", missing, "othersServed", served)
	}
}

// publish decides on what the sources see and sends it if it differs from the
// last Snapshot. It returns the Snapshot that was sent last.
func (r *Registry) publish(ctx context.Context, last Snapshot, config *Config, f found) Snapshot {
	snapshot, conflicts := merge(config, f)
	r.mu.Lock()
	was := r.conflicts
	r.conflicts = conflicts
	r.mu.Unlock()
	logger := klog.FromContext(ctx)
	for _, c := range newIn(conflicts, was) {
		logger.Info("Conflict: discovered driver is not served", "driver", c.Driver, "found", c.Loser, "served", c.Winner, "reason", c.Reason)
	}
	for _, c := range newIn(was, conflicts) {
		logger.Info("Conflict is resolved", "driver", c.Driver, "found", c.Loser, "reason", c.Reason)
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
