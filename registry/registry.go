package registry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// sourceTimeout is how long a Snapshot waits at most for the first set of a Source that was
// started. A Source that cannot see anything, as without permission, must not keep the drivers
// of the file from being served.
const sourceTimeout = 30 * time.Second

// Registry decides which drivers are to be served, from the file and from what the Source of CSIDriver objects
// sees, which it starts and stops as the file says.
type Registry struct {
	file    ConfigSource
	objects Source
	updates chan Snapshot // holds the latest one; Run alone sends

	conflicts atomic.Pointer[[]Conflict]
}

// Source looks for drivers: first it sends every driver that it sees, as soon as it knows all,
// then again after each change. It extracts and does not decide: a Driver from it has no
// Settings, and its Endpoint is what somebody wrote, unchecked, or "" where nobody did.
//
// It runs until ctx ends, returns promptly then, leaves no goroutine behind and can run again.
// send does not block, and what was sent is not changed.
type Source func(ctx context.Context, send func([]Driver))

// ConfigSource holds the drivers that a user listed one by one, and what a user said
// about all others.
type ConfigSource interface {
	// Name says in the log where the Config comes from.
	Name() string
	// Config returns the latest Config, at once.
	Config() *Config
	// Run calls changed, which does not block, after each change of Config. It ends as a Source.
	Run(ctx context.Context, changed func())
}

// New returns the Registry of the drivers that the file lists, and of those that the Source of
// CSIDriver objects finds while discovery.csiDrivers is enabled. It starts nothing.
func New(file ConfigSource, objects Source) *Registry {
	r := &Registry{file: file, objects: objects, updates: make(chan Snapshot, 1)}
	r.conflicts.Store(&[]Conflict{})
	return r
}

// Updates is where Run sends what is to be served: the latest Snapshot, of those
// before it some may be missed. The first one comes after every source has sent its
// first set, so that it is complete, or after 30 seconds, which is logged.
// There is one receiver. It is never closed.
func (r *Registry) Updates() <-chan Snapshot { return r.updates }

// Conflicts returns what was found and is not served, as of the latest Snapshot,
// in order of name.
func (r *Registry) Conflicts() []Conflict {
	return slices.Clone(*r.conflicts.Load())
}

// Run runs the sources and sends to Updates until ctx ends. It returns nil then,
// after every source has ended. A Registry can run once.
func (r *Registry) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	defer start(ctx, func(ctx context.Context) { r.file.Run(ctx, func() { notify(changed) }) })()
	stop := func() {} // ends the Source of objects
	defer func() { stop() }()
	following := false                  // discovery.csiDrivers is on
	var latest atomic.Pointer[[]Driver] // what the Source sent; nil until the first
	var memory objectMemory
	var overdue <-chan time.Time
	var last Snapshot // nil: none was sent
	for notify(changed); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-overdue:
			overdue = nil
			if latest.Load() == nil {
				klog.FromContext(ctx).Info("The CSIDriver objects are not known yet, serving the drivers of the file")
			}
		}
		config := r.file.Config()
		if wanted := config.discovery.Enabled; wanted != following {
			stop()
			latest.Store(nil)
			stop, following, memory, overdue = func() {}, wanted, objectMemory{}, nil
			if wanted {
				overdue = time.After(sourceTimeout)
				stop = start(ctx, func(ctx context.Context) {
					r.objects(ctx, func(set []Driver) {
						latest.Store(&set)
						notify(changed)
					})
				})
			}
		}
		if found := latest.Load(); found != nil {
			last = r.publish(ctx, last, config, memory.withDeleted(*found))
		} else if overdue == nil {
			last = r.publish(ctx, last, config, nil)
		}
	}
}

// start runs something until stop, which waits for its end, or the end of ctx.
func start(ctx context.Context, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// publish decides on what the sources see and sends it if it differs from the
// last Snapshot. It returns the Snapshot that was sent last.
func (r *Registry) publish(ctx context.Context, last Snapshot, config *Config, found []Driver) Snapshot {
	snapshot, conflicts := merge(config, found, last)
	was := r.Conflicts()
	r.conflicts.Store(&conflicts)
	for _, c := range conflicts {
		if !slices.ContainsFunc(was, c.isLike) {
			klog.FromContext(ctx).Info("Conflict: discovered driver is not served", "driver", c.Driver, "found", c.Loser, "served", c.Winner, "reason", c.Reason)
		}
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

// notify signals on a channel of capacity 1, unless a signal waits there already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
