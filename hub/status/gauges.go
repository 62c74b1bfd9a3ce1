package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"

	// client-go's requests are counted into the registry of component-base, the only one that client-go can be given once
	// for a process.
	_ "k8s.io/component-base/metrics/prometheus/restclient"
)

// Gatherer returns all metrics of /metrics: the counters, gauges of what the source returns at the
// scrape, and those of client-go, the Go runtime and the process.
func (m *Metrics) Gatherer(source Source) prometheus.Gatherer {
	return prometheus.Gatherers{m.registry, gauges(source), legacyregistry.DefaultGatherer}
}

// gauges makes gauges of what the Source returns at each scrape. The series of a driver so begin
// and end with the driver.
func gauges(source Source) prometheus.GathererFunc {
	return func() (families []*dto.MetricFamily, err error) {
		defer func() { // a panic would cost the counters too
			if r := recover(); r != nil {
				families, err = nil, fmt.Errorf("panic: %v", r)
			}
		}()
		s := gaugeSet{prometheus.NewRegistry(), map[string]*prometheus.GaugeVec{}}
		s.add(look(source))
		return s.registry.Gather()
	}
}

// gaugeSet has the gauges of one scrape.
type gaugeSet struct {
	registry *prometheus.Registry
	vectors  map[string]*prometheus.GaugeVec // by name
}

// gauge returns a gauge by its name and its labels. Values of labels are bounded and made valid here.
func (s gaugeSet) gauge(name, help string, labels prometheus.Labels) prometheus.Gauge {
	if s.vectors[name] == nil {
		opts := prometheus.GaugeOpts{Name: "attach_hub_" + name, Help: help}
		s.vectors[name] = promauto.With(s.registry).NewGaugeVec(opts, slices.Collect(maps.Keys(labels)))
	}
	for key, value := range labels {
		labels[key] = label(value)
	}
	return s.vectors[name].With(labels)
}

func (s gaugeSet) add(v view) {
	engaged := map[string]bool{}
	for _, d := range v.drivers {
		engaged[label(d.Name)] = true
		s.addDriver(d)
		s.conflicts(d.Name) // 0 for none
	}
	s.addConfig(v.Config, engaged)
	s.addUnserved(v.Overview)
}

func (s gaugeSet) addDriver(d Driver) {
	driver := prometheus.Labels{"driver": d.Name}
	s.gauge("driver_up", "Whether the driver is connected and well.", driver).Set(truth[d.Up])
	s.gauge("driver_leader", "Whether this process works for the driver: it holds the driver's lease.", driver).Set(truth[d.Lease.Mine])
	s.gauge("dangling_publications", "Volumes that are or may be attached without a VolumeAttachment.", driver).Set(float64(d.DanglingCount))
	s.gauge("waiting_for_capacity", "Attaches that wait until a volume is detached from their node, which is full.", driver).Set(float64(d.WaitingForCapacity))
	s.gauge("driver_info", "What the driver is and how it is served; always 1.",
		prometheus.Labels{"driver": d.Name, "mode": d.Mode, "endpoint": d.Endpoint, "version": d.Version, "source": d.Source}).Set(1)
	for _, h := range HealthStates {
		s.gauge("driver_health", "Health of the driver: 1 for the one that holds, 0 for the others.",
			prometheus.Labels{"driver": d.Name, "health": string(h)}).Set(truth[d.Health.State == h])
	}
	s.addLane(d, d.Lane(Attach).With(d.Lane(Drift))) // the work of drift is attaches too
	s.addLane(d, d.Lane(Detach))
}

func (s gaugeSet) addLane(d Driver, l Lane) {
	lane, now := prometheus.Labels{"driver": d.Name, "operation": string(l.Operation)}, time.Now()
	s.gauge("queue_depth", "VolumeAttachments that are queued or in backoff.", lane).Set(float64(l.Queued + l.Delayed))
	s.gauge("queue_oldest_seconds", "Age of the oldest VolumeAttachment that is queued or in backoff.", lane).Set(passed(l.OldestSince, now).Seconds())
	s.gauge("call_oldest_seconds", "Age of the oldest call in flight; 0 if there is none.", lane).Set(passed(l.OldestCall.Since, now).Seconds())
	s.gauge("workers_busy", "Workers that are busy.", lane).Set(float64(l.Running))
	s.gauge("workers", "Most workers that the operation may use now, including those that the other operation lends.", lane).Set(float64(l.Workers))
	s.gauge("stuck", "VolumeAttachments that are without success for longer than stuckAfter.", lane).Set(float64(l.Stuck))
}

func (s gaugeSet) conflicts(driver string) prometheus.Gauge {
	return s.gauge("registry_conflicts", "Places where the driver was found and that are not served.", prometheus.Labels{"driver": driver})
}

// addConfig adds the state of the configuration. The number of drivers that have conflicts and are not engaged is not
// bounded.
func (s gaugeSet) addConfig(c Config, engaged map[string]bool) {
	for _, f := range c.Files {
		s.gauge("config_last_reload_successful", "Whether the file of the configuration holds as it is now.",
			prometheus.Labels{"file": f.Path}).Set(truth[f.Rejected == ""])
	}
	s.gauge("config_last_reload_success_timestamp_seconds", "When the active configuration was read, in seconds since 1970.", nil).
		Set(float64(max(0, c.LastSuccess.UnixMilli())) / 1000)
	hash, _ := strconv.ParseUint(c.Hash[:min(len(c.Hash), 12)], 16, 64) // as many digits as a sample can hold; 0 without a hash
	s.gauge("config_hash", "Hash of the active configuration.", nil).Set(float64(hash))
	unserved := map[string]int{}
	for _, c := range c.Conflicts {
		if engaged[label(c.Driver)] {
			s.conflicts(c.Driver).Inc()
		} else {
			unserved[c.Driver]++
		}
	}
	for driver, n := range bounded(unserved) {
		s.conflicts(driver).Add(float64(n)) // "other" may be a driver's name
	}
}

// addUnserved shows both metrics of unserved VolumeAttachments for the same attachers.
func (s gaugeSet) addUnserved(o Overview) {
	counts, oldest := bounded(o.Unserved), map[string]float64{}
	for attacher, since := range o.UnservedSince {
		name := label(attacher)
		if _, own := counts[name]; !own {
			name = others
		}
		oldest[name] = max(oldest[name], time.Since(since).Seconds())
	}
	for name, n := range counts {
		attacher := prometheus.Labels{"attacher": name}
		s.gauge("unserved_volumeattachments", "VolumeAttachments of a driver that is not served here.", attacher).Set(float64(n))
		s.gauge("unserved_oldest_seconds", "Time that the longest-waiting VolumeAttachment of a driver that is not served here shows no sign of any attacher; 0 if none waits.",
			attacher).Set(oldest[name])
	}
}

const (
	others      = "other" // the label of all attachers beyond mostUnknown
	mostUnknown = 100     // how many drivers that are not served have their own series
)

// bounded returns the names with the highest counts, and the sum of all others as "other": anybody
// who may create VolumeAttachments can invent names of attachers.
func bounded(counts map[string]int) map[string]int {
	valid := map[string]int{}
	for name, n := range counts {
		valid[label(name)] += n
	}
	names := slices.SortedFunc(maps.Keys(valid), func(a, b string) int { return cmp.Or(valid[b]-valid[a], cmp.Compare(a, b)) })
	for _, name := range names[min(len(names), mostUnknown):] {
		n := valid[name]
		delete(valid, name) // it may be "other"
		valid[others] += n
	}
	return valid
}

// truth is the value of a gauge that is 1 or 0.
var truth = map[bool]float64{true: 1}
