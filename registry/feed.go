package registry

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// restartDelay is when a Source that ended by itself runs again.
const restartDelay = 10 * time.Second

// Keys of the feeds that there is one of. A glob for sockets begins with '/'.
const (
	fileFeed      = "file"
	csiDriverFeed = "csiDrivers"
)

// feed is a Source that runs, and the latest set that it sent.
type feed struct {
	source  Source
	cancel  context.CancelFunc
	ended   chan struct{}
	known   bool // it has sent a set
	drivers []Driver
}

// message is a set that a feed has sent.
type message struct {
	from *feed
	set  []Driver
}

// feeds is the sources that run. Its fields belong to the loop of the Registry.
type feeds struct {
	options  Options
	config   *Config // with which what was found is decided on
	running  map[string]*feed
	deleted  deletedObjects
	messages chan message
	all      sync.WaitGroup
}

func newFeeds(o Options) *feeds {
	return &feeds{options: o, running: map[string]*feed{}, messages: make(chan message)}
}

// start runs a Source.
func (f *feeds) start(ctx context.Context, key string, source Source) {
	ctx, cancel := context.WithCancel(ctx)
	one := &feed{source: source, cancel: cancel, ended: make(chan struct{})}
	f.running[key] = one
	f.all.Go(func() {
		defer close(one.ended)
		one.run(ctx, f.messages)
	})
}

// stop ends a Source and forgets what it saw.
func (f *feeds) stop(key string) {
	one := f.running[key]
	one.cancel()
	<-one.ended
	delete(f.running, key)
	if key == csiDriverFeed {
		f.deleted = nil
	}
}

// wait blocks until every Source has ended, once the ctx of all has.
func (f *feeds) wait() { f.all.Wait() }

// take records what a feed has sent, and the Config as it is now. It lets the
// sources follow that Config, and says whether one was started.
func (f *feeds) take(ctx context.Context, m message, config *Config) (started bool) {
	if m.from == f.running[csiDriverFeed] {
		f.deleted.follow(m.from.drivers, m.set)
	}
	m.from.known, m.from.drivers = true, m.set
	if f.config == config {
		return false
	}
	f.config = config
	discovery := config.Discovery()
	for key := range f.running {
		if key != fileFeed && !slices.Contains(discovery.Sockets, key) && (key != csiDriverFeed || !discovery.CSIDrivers.Enabled) {
			f.stop(key)
		}
	}
	if discovery.CSIDrivers.Enabled && f.running[csiDriverFeed] == nil {
		f.start(ctx, csiDriverFeed, f.options.CSIDrivers())
		started = true
	}
	for _, glob := range discovery.Sockets {
		started = f.startSockets(ctx, glob) || started
	}
	return started
}

// startSockets is start for a glob. One that cannot be used is logged, and the
// others go on.
func (f *feeds) startSockets(ctx context.Context, glob string) (started bool) {
	if f.running[glob] != nil {
		return false
	}
	source, err := f.options.Sockets(glob)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Sockets cannot be looked for", "glob", glob)
		return false
	}
	f.start(ctx, glob, source)
	return true
}

// missing returns the names of the sources that have not sent a set yet.
func (f *feeds) missing() []string {
	var names []string
	for _, one := range f.running {
		if !one.known {
			names = append(names, one.source.Name())
		}
	}
	slices.Sort(names)
	return names
}

// found returns what the sources beside the file see.
func (f *feeds) found() found {
	var all found
	for key, one := range f.running {
		switch key {
		case fileFeed: // its drivers are those of the Config
		case csiDriverFeed:
			all.csiDrivers = slices.Concat(one.drivers, f.deleted)
		default:
			all.sockets = append(all.sockets, one.drivers...)
		}
	}
	return all
}

// run passes on what the Source sends until ctx ends and the Source with it.
func (one *feed) run(ctx context.Context, messages chan<- message) {
	out := make(chan []Driver)
	var source sync.WaitGroup
	defer source.Wait()
	source.Go(func() {
		defer close(out)
		one.keepRunning(ctx, out)
	})
	for set := range out {
		select {
		case messages <- message{from: one, set: set}:
		case <-ctx.Done():
		}
	}
}

// keepRunning runs the Source again if it ends before its time. What it saw stays.
func (one *feed) keepRunning(ctx context.Context, out chan<- []Driver) {
	for {
		err := one.source.Run(ctx, out)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "A source of drivers ended, starting it again", "source", one.source.Name(), "in", restartDelay)
		select {
		case <-time.After(restartDelay):
		case <-ctx.Done():
			return
		}
	}
}
