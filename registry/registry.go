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
	// drivers of the file from being served.
	startupTimeout = 30 * time.Second
	// sourceTimeout is how long a later change waits at most for the first set of a Source
	// that was started.
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
}

// Registry decides which drivers are to be served, from the file and from what the Source of CSIDriver objects
// sees, which it starts and stops as the file says.
type Registry struct {
	options Options
	updates chan Snapshot // holds the latest one; Run alone sends

	mu        sync.Mutex
	conflicts []Conflict // guarded by mu
}

// New checks the options. It starts nothing.
func New(o Options) (*Registry, error) {
	if o.File == nil || o.CSIDrivers == nil {
		return nil, errors.New("registry: Options.File and CSIDrivers must both be set")
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
	changed := make(chan struct{}, 1)
	var objects *runner // nil while discovery.csiDrivers is off
	var file sync.WaitGroup
	defer file.Wait()
	defer func() { objects.stop() }()
	defer cancel()
	file.Go(func() {
		keepRunning(ctx, r.options.File.Name(), func(ctx context.Context) error {
			return r.options.File.Run(ctx, func() { notify(changed) })
		})
	})
	deadline, overdue := time.NewTimer(startupTimeout), false
	defer deadline.Stop()
	var last Snapshot // nil: none was sent
	for notify(changed); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-deadline.C:
			if overdue = true; objects != nil && objects.latest.Load() == nil {
				klog.FromContext(ctx).Info("Source has not reported yet, serving the drivers of the file", "source", objects.name)
			}
		}
		config := r.options.File.Config()
		if wanted := config != nil && config.discovery.CSIDrivers.Enabled; wanted != (objects != nil) {
			objects.stop()
			objects = nil
			if wanted {
				objects = startRunner(ctx, r.options.CSIDrivers(), changed)
			}
			if wanted && last != nil {
				overdue = false
				deadline.Reset(sourceTimeout)
			}
		}
		found, reported := objects.found()
		if config != nil && (reported || overdue) {
			last = r.publish(ctx, last, config, found)
		}
	}
}

// publish decides on what the sources see and sends it if it differs from the
// last Snapshot. It returns the Snapshot that was sent last.
func (r *Registry) publish(ctx context.Context, last Snapshot, config *Config, found []Driver) Snapshot {
	snapshot, conflicts := merge(config, found, last)
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
