package hub

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// A driver whose work panicked is served again after a delay that doubles with each panic.
	restartInitial = time.Second
	restartMax     = time.Minute
)

// follow serves the drivers of each snapshot until ctx ends, and returns when all have drained. It does not
// interrupt a driver that is in the next snapshot too: the manager takes the new spec. A driver with WindDown
// is served only while it is in use. follow calls begun after each snapshot.
func (h *Hub) follow(ctx context.Context, updates <-chan registry.Snapshot, begun func()) {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[string]*manager{}
	var latest registry.Snapshot
	look := time.NewTicker(windDownEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case want, ok := <-updates:
			if !ok {
				updates = nil // no snapshot follows; the drivers of the latest one stay
				continue
			}
			latest = want
			h.apply(ctx, &all, running, h.needed(latest))
			begun()
		case <-look.C:
			h.apply(ctx, &all, running, h.needed(latest))
		}
	}
}

// apply retires, changes and starts managers until they serve the wanted drivers.
func (h *Hub) apply(ctx context.Context, all *sync.WaitGroup, running map[string]*manager, want registry.Snapshot) {
	logger := klog.FromContext(ctx)
	for name, m := range running {
		if _, ok := want[name]; !ok {
			logger.Info("Driver is no longer configured, draining it", "driver", name)
			m.retire()
			delete(running, name)
		}
	}
	for name, spec := range want {
		m := running[name]
		if spec.WindDown && (m == nil || !m.get().spec.WindDown) {
			logger.Info("Serving driver until none of its volumes is attached", "driver", name, "source", spec.Source)
		}
		if m == nil {
			running[name] = h.start(ctx, all, spec)
		} else if m.setSpec(spec) {
			logger.Info("Driver settings changed", "driver", name, "source", spec.Source)
		}
	}
}

// start serves a driver until its manager is retired or ctx ends. If an earlier manager of the driver still
// drains, the new manager waits until that has ended.
func (h *Hub) start(ctx context.Context, all *sync.WaitGroup, spec registry.Driver) *manager {
	logger := klog.FromContext(ctx).WithValues("driver", spec.Name)
	ctx, retire := context.WithCancel(klog.NewContext(ctx, logger))
	h.mu.Lock()
	defer h.mu.Unlock()
	remembered, ok := h.memories[spec.Name]
	if !ok {
		remembered = h.newMemory(logger, spec.Name)
		h.memories[spec.Name] = remembered
	}
	m, predecessor := h.newManager(logger, spec, remembered), h.managers[spec.Name]
	m.retire = retire
	h.managers[spec.Name] = m
	panics.Go(all, m.panicked, func() {
		defer h.forget(m)
		defer retire()
		if predecessor != nil {
			<-predecessor.ended
		}
		m.serve(ctx)
	})
	return m
}

// panicked logs a panic outside of a run of the manager.
func (m *manager) panicked(err error) { m.logger.Error(err, "Failed to end the work for a driver") }

// forget drops a manager that has ended. The memory of its driver stays, without secrets.
func (h *Hub) forget(m *manager) {
	defer close(m.ended)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.managers[m.name] == m {
		delete(h.managers, m.name)
		h.options.Metrics.Forget(m.name)
		m.table.DropSecrets()
	}
}

// serve serves the driver until ctx ends. After a panic it starts again.
func (m *manager) serve(ctx context.Context) {
	for delay := restartInitial; ctx.Err() == nil; delay = min(2*delay, restartMax) {
		began := time.Now()
		var err error
		panics.Contain(func(panicked error) { err = panicked }, func() { err = m.run(ctx) })
		if err == nil {
			return
		}
		if time.Since(began) > restartMax {
			delay = restartInitial
		}
		panics.Contain(m.panicked, func() {
			m.logger.Error(err, "Serving driver failed, restarting it", "retryIn", delay)
			m.update(func(s *driverState) { s.setConnection(Connecting, "starting again after an error in the hub") })
		})
		sleep(ctx, delay)
	}
}
