package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
)

// fakeHub is a hub as far as this package sees one: drivers are engaged and retired,
// their VolumeAttachments come and change, and what happens is counted.
type fakeHub struct {
	metrics *Metrics
	health  *probes.Probes

	mu          sync.Mutex
	drivers     map[string]Driver
	attachments map[string]Attachment
	overview    Overview
	panics      bool // whoever asks for the drivers
}

func newFakeHub() *fakeHub {
	return &fakeHub{
		metrics:     NewMetrics(),
		health:      new(probes.Probes),
		drivers:     map[string]Driver{},
		attachments: map[string]Attachment{},
		overview: Overview{Version: "v1.2.3", Identity: "hub-a", Config: Config{
			Files: []ConfigFile{{Path: "drivers.yaml"}}, Hash: "abc", LastSuccess: time.Unix(1700000000, 500e6),
		}},
	}
}

// engage begins to serve a driver, which is up at once.
func (h *fakeHub) engage(name string) *DriverMetrics {
	h.change(func() {
		h.drivers[name] = Driver{
			Name: name, State: "Ready", Up: true, Mode: "active", Source: "drivers.yaml:3",
			Endpoint: "unix:///csi/" + name + "/csi.sock", Version: "4.5.6", Since: time.Unix(1700000001, 0),
			Lease: Lease{Name: "external-attacher-leader-" + name, Holder: "hub-a", Mine: true}, Workers: 20,
			Lanes: []Lane{{Operation: Attach, Workers: 10}, {Operation: Detach, Workers: 10}, {Operation: Drift}, {Operation: Finalizer}},
		}
	})
	return h.metrics.Driver(name)
}

// retire ends the service of a driver.
func (h *fakeHub) retire(name string) {
	h.change(func() { delete(h.drivers, name) })
	h.metrics.Forget(name)
}

// load gives a driver n VolumeAttachments, each on a node of its own, with each of
// which something happens.
func (h *fakeHub) load(driver string, n int, state AttachmentState) {
	m := h.metrics.Driver(driver)
	h.change(func() {
		for i := range n {
			name := fmt.Sprintf("%s-%05d", driver, i)
			h.attachments[name] = Attachment{Name: name, Driver: driver, Node: fmt.Sprintf("node-%d", i), State: state,
				PersistentVolume: "pv-" + name, VolumeHandle: "vol-" + name}
		}
	})
	for i := range n {
		m.Operation(Attach, Results[i%len(Results)], time.Second)
		m.Operation(Detach, Results[i%len(Results)], time.Second)
		m.Retry(Attach)
	}
}

// setDriver changes a driver that is engaged.
func (h *fakeHub) setDriver(name string, change func(*Driver)) {
	h.change(func() {
		d := h.drivers[name]
		change(&d)
		h.drivers[name] = d
	})
}

func (h *fakeHub) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *fakeHub) Drivers() []Driver {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.panics {
		panic("out of order")
	}
	return slices.Collect(maps.Values(h.drivers))
}

func (h *fakeHub) Attachments(AttachmentFilter) []Attachment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.attachments))
}

func (h *fakeHub) Checklist(_ context.Context, driver string) []Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.drivers[driver].Checklist
}

func (h *fakeHub) Overview() Overview {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.overview
	o.Unserved = maps.Clone(o.Unserved)
	o.Replicas = slices.Clone(o.Replicas)
	return o
}
