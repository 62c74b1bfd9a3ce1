package hub

import (
	"context"
	"sync"

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
// a line that is added to the file moves all those below it. Nor is WindDown, which
// only says until when the driver is served.
func (d *desired) set(to registry.Driver) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	from := d.driver
	d.driver = to
	from.Source, from.WindDown = to.Source, to.WindDown
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

// windsDown reports whether the driver is served only until nothing of it is left.
func (d *desired) windsDown() bool {
	value, _ := d.get()
	return value.WindDown
}

// dialled returns the part of a value that a connection is made from.
func dialled(d registry.Driver) registry.Driver {
	return registry.Driver{Name: d.Name, Endpoint: d.Endpoint, TLS: d.TLS}
}

// whileReachedAs returns a context that ends with ctx, or when the driver is to be reached
// in another way than value says.
func (d *desired) whileReachedAs(ctx context.Context, value registry.Driver) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		for {
			now, changed := d.get()
			if dialled(now) != dialled(value) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}
