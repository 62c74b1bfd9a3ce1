package hub

import (
	"context"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// desired is how a driver is to be served. It changes while the driver is served;
// what reads it reads it anew each time.
type desired struct {
	mu      sync.Mutex
	driver  registry.Driver
	changed chan struct{} // closed at the next change
}

func newDesired(d registry.Driver) *desired {
	return &desired{driver: d, changed: make(chan struct{})}
}

// get returns the value of the moment, and a channel that is closed when it changes.
func (d *desired) get() (registry.Driver, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.driver, d.changed
}

// set takes a new value. Where the driver was learned is no reason to do anything:
// a line that is added to the file moves all those below it.
func (d *desired) set(to registry.Driver) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	from := d.driver
	d.driver = to
	from.Source = to.Source
	if from == to {
		return false
	}
	close(d.changed)
	d.changed = make(chan struct{})
	return true
}

// settings returns the settings of the moment.
func (d *desired) settings() registry.Settings {
	value, _ := d.get()
	return value.Settings
}

// follow hands each value to a function, the one of the moment first, until ctx ends.
func (d *desired) follow(ctx context.Context, take func(registry.Driver)) {
	for {
		value, changed := d.get()
		take(value)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// dialled returns the part of a value that a connection is made from.
func dialled(d registry.Driver) registry.Driver {
	return registry.Driver{Name: d.Name, Endpoint: d.Endpoint, TLS: d.TLS}
}

// pause waits for as long as the settings of the moment want, counted from its begin,
// and follows them when they change. It returns false when ctx has ended.
func (d *desired) pause(ctx context.Context, length func(registry.Settings) time.Duration) bool {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		value, changed := d.get()
		left := length(value.Settings) - time.Since(began)
		if left <= 0 {
			return ctx.Err() == nil
		}
		timer.Reset(left)
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		case <-changed:
		}
	}
}
