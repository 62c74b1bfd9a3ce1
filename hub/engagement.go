package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// A driver whose work panicked starts again, later each time it does.
	restartInitial = time.Second
	restartMax     = time.Minute
)

// engagement is a driver that is being served, or drains.
type engagement struct {
	desired   *desired
	condition *condition
	intruder  *intruder
	tally     *tally
	post      atomic.Pointer[post] // nil before the first
	halt      *halt
	retire    context.CancelFunc
	ended     chan struct{} // closed when it has drained
}

// follow makes what runs match each snapshot, until ctx ends and all has drained. A
// driver that is in the next snapshot too is not interrupted: what changed of it is
// handed to it. Drivers with WindDown come and go with what is left of them. begun is
// called after each snapshot.
func (h *Hub) follow(ctx context.Context, updates <-chan registry.Snapshot, begun func()) {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[string]*engagement{}
	var latest registry.Snapshot
	for {
		select {
		case <-ctx.Done():
			return
		case want, ok := <-updates:
			if !ok {
				updates = nil // nothing more will come; what runs goes on
				continue
			}
			latest = want
			h.apply(ctx, &all, running, h.needed(latest))
			begun()
		case <-h.windDown.changed:
			h.apply(ctx, &all, running, h.needed(latest))
		}
	}
}

// apply retires, changes and engages drivers until running is as wanted.
func (h *Hub) apply(ctx context.Context, all *sync.WaitGroup, running map[string]*engagement, want registry.Snapshot) {
	for name, e := range running {
		if _, ok := want[name]; !ok {
			klog.FromContext(ctx).Info("The driver is not served any more", "driver", name)
			e.retire()
			delete(running, name)
		}
	}
	for name, value := range want {
		e := running[name]
		if value.WindDown && (e == nil || !e.desired.windsDown()) {
			klog.FromContext(ctx).Info("Serving the driver only until nothing of it is attached", "driver", name, "source", value.Source)
		}
		if e == nil {
			running[name] = h.engage(ctx, all, value)
		} else if e.desired.set(value) {
			klog.FromContext(ctx).Info("The settings of the driver have changed", "driver", name, "source", value.Source)
			e.halt.set("") // somebody has looked at it
		}
	}
}

// engage serves a driver until it is retired or ctx ends, for ever again if its
// work panics. What its workers remember outlives all that. If the driver drains still
// from being served before, it begins when that has ended.
func (h *Hub) engage(ctx context.Context, all *sync.WaitGroup, value registry.Driver) *engagement {
	logger := klog.FromContext(ctx).WithValues("driver", value.Name)
	ctx, retire := context.WithCancel(klog.NewContext(ctx, logger))
	e := &engagement{desired: newDesired(value), condition: newCondition(time.Now()), intruder: &intruder{}, tally: newTally(h.options.Metrics.Driver(value.Name)), halt: newHalt(), retire: retire, ended: make(chan struct{})}
	h.mu.Lock()
	predecessor := h.engaged[value.Name]
	h.engaged[value.Name] = e
	table := h.tables[value.Name]
	if table == nil {
		table = volume.NewTable(attach.Finalizer(value.Name))
		h.tables[value.Name] = table
	}
	h.mu.Unlock()
	all.Go(func() {
		defer h.disengage(value.Name, e)
		defer retire()
		if predecessor != nil {
			<-predecessor.ended
		}
		h.serve(ctx, logger, value.Name, e, table)
	})
	return e
}

// disengage forgets an engagement that has ended.
func (h *Hub) disengage(name string, e *engagement) {
	h.mu.Lock()
	if h.engaged[name] == e {
		delete(h.engaged, name)
		h.options.Metrics.Forget(name)
	}
	h.mu.Unlock()
	close(e.ended)
	h.windDown.driver(name) // it may have left something that could not be undone
}

// serve runs a driver until ctx ends.
func (h *Hub) serve(ctx context.Context, logger klog.Logger, name string, e *engagement, table *volume.Table) {
	for delay := restartInitial; ctx.Err() == nil; delay = min(2*delay, restartMax) {
		began := time.Now()
		p := h.newPost(logger, name, e, table)
		e.post.Store(p)
		err := p.run(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if time.Since(began) > restartMax {
			delay = restartInitial
		}
		logger.Error(err, "Serving the driver went wrong, starting it again", "in", delay)
		e.condition.enter(Connecting, "starting again after an error in the hub", time.Now())
		sleep(ctx, delay)
	}
}

func (h *Hub) newPost(logger klog.Logger, name string, e *engagement, table *volume.Table) *post {
	c := newConnection(e, h.options.Connect)
	return &post{
		hub:        h,
		name:       name,
		desired:    e.desired,
		condition:  e.condition,
		connection: c,
		absence:    &absence{connection: c, timeout: h.options.LeaseDuration},
		intruder:   e.intruder,
		halt:       e.halt,
		table:      table,
		tally:      e.tally,
		logger:     logger,
	}
}
