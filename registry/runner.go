package registry

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// restartDelay is when a Source that ended by itself runs again.
const restartDelay = 10 * time.Second

// csiDriverKey is the key of the Source of CSIDriver objects among runners. A Source of
// sockets has its glob as key, which begins with '/'.
const csiDriverKey = "csiDrivers"

// runner runs one Source and holds the latest set that it sent.
type runner struct {
	name   string
	latest atomic.Pointer[[]Driver] // nil until the first
	cancel context.CancelFunc
	ended  chan struct{} // closed when the Source has ended
}

// runners are the Sources that run beside the ConfigSource. All fields but changed belong
// to the goroutine of Registry.Run.
type runners struct {
	options Options
	changed chan struct{} // of capacity 1: something was sent
	config  *Config       // that the Sources follow; nil if there is none yet
	byKey   map[string]*runner
	objects objectMemory
}

func newRunners(o Options) *runners {
	return &runners{options: o, changed: make(chan struct{}, 1), byKey: map[string]*runner{}}
}

// follow starts and stops Sources so that those run that the Config names. It reports
// whether it started a Source.
func (rs *runners) follow(ctx context.Context) (started bool) {
	config := rs.options.File.Config()
	if config == rs.config {
		return false
	}
	rs.config = config
	keys := slices.Clone(config.discovery.Sockets)
	if config.discovery.CSIDrivers.Enabled {
		keys = append(keys, csiDriverKey)
	}
	for key := range rs.byKey {
		if !slices.Contains(keys, key) {
			rs.stop(key)
		}
	}
	for _, key := range keys {
		if rs.byKey[key] == nil && rs.start(ctx, key) {
			started = true
		}
	}
	return started
}

// start runs the Source of a key. A glob that cannot be used is logged and left out.
func (rs *runners) start(ctx context.Context, key string) (started bool) {
	var source Source
	if key == csiDriverKey {
		source = rs.options.CSIDrivers()
	} else {
		var err error
		if source, err = rs.options.Sockets(key); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot look for sockets", "glob", key)
			return false
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &runner{name: source.Name(), cancel: cancel, ended: make(chan struct{})}
	rs.byKey[key] = r
	go func() {
		defer close(r.ended)
		keepRunning(ctx, r.name, func(ctx context.Context) error {
			return source.Run(ctx, func(set []Driver) {
				r.latest.Store(&set)
				notify(rs.changed)
			})
		})
	}()
	return true
}

// stop ends the Source of a key, waits for that, and forgets what it saw.
func (rs *runners) stop(key string) {
	r := rs.byKey[key]
	r.cancel()
	<-r.ended
	delete(rs.byKey, key)
	if key == csiDriverKey {
		rs.objects = objectMemory{}
	}
}

// wait blocks until every Source has ended, which they do with the ctx of follow.
func (rs *runners) wait() {
	for key := range rs.byKey {
		rs.stop(key)
	}
}

// missing returns the names of the sources that have not reported yet.
func (rs *runners) missing() []string {
	var names []string
	if rs.config == nil {
		names = append(names, rs.options.File.Name())
	}
	for _, r := range rs.byKey {
		if r.latest.Load() == nil {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return names
}

// found returns what the Sources see.
func (rs *runners) found() found {
	var all found
	for key, r := range rs.byKey {
		latest := r.latest.Load()
		switch {
		case latest == nil:
		case key == csiDriverKey:
			all.csiDrivers = rs.objects.withDeleted(*latest)
		default:
			all.sockets = append(all.sockets, *latest...)
		}
	}
	return all
}

// keepRunning runs something again if it ends by itself, until ctx ends.
func keepRunning(ctx context.Context, name string, run func(context.Context) error) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := run(ctx); ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Source of drivers failed, restarting it", "source", name, "retryIn", restartDelay)
		}
	}, restartDelay)
}
