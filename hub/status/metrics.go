package status

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"

	// client-go's requests and informers are counted into the registry of component-base, the only one
	// that client-go can be given once for a process. Its workqueue and leader election are not used with names, and
	// client-go 0.37 calls no metric of reflectors.
	_ "k8s.io/component-base/metrics/prometheus/clientgo/fifo"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
)

// Metrics has the counters of each driver. A nil Metrics counts nothing.
type Metrics struct {
	registry *prometheus.Registry

	mu      sync.Mutex
	drivers map[string]*DriverMetrics // by label value; guarded by mu
}

// NewMetrics returns Metrics without a driver.
func NewMetrics() *Metrics {
	return &Metrics{registry: prometheus.NewRegistry(), drivers: map[string]*DriverMetrics{}}
}

// Driver returns the metrics of a driver. Its series exist, at zero, from the first
// call until Forget.
func (m *Metrics) Driver(name string) *DriverMetrics {
	if m == nil {
		return nil
	}
	name = label(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		return d
	}
	d := newDriverMetrics(name)
	m.registry.MustRegister(d.series) // names are unique in m.drivers
	m.drivers[name] = d
	return d
}

// Forget ends the series of a driver. What is still counted into its DriverMetrics goes
// nowhere, and another call of Driver begins at zero.
func (m *Metrics) Forget(name string) {
	if m == nil {
		return
	}
	name = label(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		m.registry.Unregister(d.series)
		delete(m.drivers, name)
	}
}

// history returns the recent operations of a driver, an empty history if the driver has no metrics.
func (m *Metrics) history(name string, now time.Time) history {
	name = label(name)
	m.mu.Lock()
	d := m.drivers[name]
	m.mu.Unlock()
	if d == nil {
		return history{}
	}
	return d.recent.history(now)
}

// Gatherer returns all metrics of /metrics: the counters, gauges of what the source returns at the
// scrape, and those of client-go, the Go runtime and the process.
func (m *Metrics) Gatherer(source Source) (prometheus.Gatherer, error) {
	gauges := prometheus.NewRegistry()
	if err := gauges.Register(collector{view{source}}); err != nil {
		return nil, fmt.Errorf("register the metrics of the hub's state: %w", err)
	}
	return prometheus.Gatherers{m.registry, gauges, legacyregistry.DefaultGatherer}, nil
}
