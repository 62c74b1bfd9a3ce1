package status

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// others is the label of all attachers beyond mostUnknown.
const others = "other"

// mostUnknown is how many drivers that are not served have their own series.
const mostUnknown = 100

var (
	healthDesc  = describe("driver_health", "Health of the driver: 1 for the one that holds, 0 for the others.", "driver", "health")
	callDesc    = describe("call_oldest_seconds", "Age of the oldest call in flight; 0 if there is none.", "driver", "operation")
	upDesc      = describe("driver_up", "Whether the driver is connected and well.", "driver")
	leaderDesc  = describe("driver_leader", "Whether this process works for the driver: it holds the driver's lease.", "driver")
	infoDesc    = describe("driver_info", "What the driver is and how it is served; always 1.", "driver", "mode", "endpoint", "version", "source")
	depthDesc   = describe("queue_depth", "VolumeAttachments that are queued or in backoff.", "driver", "operation")
	oldestDesc  = describe("queue_oldest_seconds", "Age of the oldest VolumeAttachment that is queued or in backoff.", "driver", "operation")
	busyDesc    = describe("workers_busy", "Workers that are busy.", "driver", "operation")
	workersDesc = describe("workers", "Most workers that the operation may use now, including those that the other operation lends.", "driver", "operation")
	stuckDesc   = describe("stuck", "VolumeAttachments that are without success for longer than stuckAfter.", "driver", "operation")

	capacityDesc = describe("waiting_for_capacity", "Attaches that wait until a volume is detached from their node, which is full.", "driver")
	danglingDesc = describe("dangling_publications", "Volumes that are or may be published where no VolumeAttachment asks for them.", "driver")

	// client-go has this metric too, but leaves a released lease at 1.
	masterDesc = prometheus.NewDesc("leader_election_master_status", "Whether this process holds the lease of a driver.", []string{"name"}, nil)

	unclaimedDesc = describe("unclaimed_volumeattachments", "VolumeAttachments of a driver that is not served here.", "attacher")
	waitingDesc   = describe("unclaimed_oldest_seconds", "Time that the longest-waiting VolumeAttachment of a driver that is not served here shows no sign of any attacher; 0 if none waits.", "attacher")
	conflictsDesc = describe("registry_conflicts", "Places where the driver was found and that are not served.", "driver")
	reloadDesc    = describe("config_last_reload_successful", "Whether the file of the configuration holds as it is now.", "file")
	reloadedDesc  = describe("config_last_reload_success_timestamp_seconds", "When the active configuration was read, in seconds since 1970.")
	hashDesc      = describe("config_hash", "Hash of the active configuration.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("attach_hub_"+name, help, labels, nil)
}

// collector makes gauges of what the Source returns at each scrape. The series of a driver so begin
// and end with the driver.
type collector struct{ hub view }

// Describe implements prometheus.Collector. It names no series beforehand: Collect has all of them.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	defer func() { // a panic on this goroutine would end the process
		if r := recover(); r != nil {
			out <- prometheus.NewInvalidMetric(upDesc, fmt.Errorf("panic: %v", r))
		}
	}()
	conflicts := map[string]int{} // by driver; a served driver has a series at zero
	leases := map[string]bool{}   // by name: whether this process holds the lease
	o := c.hub.overview()
	for _, d := range c.hub.judged(o.Replicas) {
		name := label(d.Name)
		if _, twice := conflicts[name]; !twice { // a duplicate series fails the whole scrape
			conflicts[name] = 0
			collectDriver(out, name, d)
		}
		if l := d.Lease; l.Name != "" {
			leases[label(l.Name)] = leases[label(l.Name)] || l.Mine // two namespaces may have leases of the same name
		}
	}
	for name, held := range leases {
		gauge(out, masterDesc, truth(held), name)
	}
	collectConfig(out, o.Config)
	collectConflicts(out, o.Config.Conflicts, conflicts)
	collectUnclaimed(out, o)
}

// collectUnclaimed shows both metrics of unclaimed VolumeAttachments for the same attachers.
func collectUnclaimed(out chan<- prometheus.Metric, o Overview) {
	counts, oldest := bounded(o.Unclaimed), map[string]float64{}
	for attacher, since := range o.UnclaimedSince {
		name := label(attacher)
		if _, own := counts[name]; !own {
			name = others
		}
		oldest[name] = max(oldest[name], time.Since(since).Seconds())
	}
	for attacher, n := range counts {
		gauge(out, unclaimedDesc, float64(n), attacher)
		gauge(out, waitingDesc, oldest[attacher], attacher)
	}
}

func collectDriver(out chan<- prometheus.Metric, name string, d Driver) {
	gauge(out, upDesc, truth(d.Up), name)
	gauge(out, leaderDesc, truth(d.Lease.Mine), name)
	for _, h := range HealthStates {
		gauge(out, healthDesc, truth(d.Health.State == h), name, string(h))
	}
	gauge(out, infoDesc, 1, name, label(d.Mode), label(d.Endpoint), label(d.Version), label(d.Source))
	gauge(out, danglingDesc, float64(d.UnownedCount), name)
	gauge(out, capacityDesc, float64(d.WaitingForCapacity), name)
	collectLane(out, name, d.Lane(Attach).with(d.Lane(Drift))) // the work of drift is attaches too
	collectLane(out, name, d.Lane(Detach))
}

func collectLane(out chan<- prometheus.Metric, driver string, l Lane) {
	op := string(l.Operation)
	gauge(out, depthDesc, float64(l.Queued+l.Delayed), driver, op)
	gauge(out, oldestDesc, l.OldestSeconds, driver, op)
	gauge(out, busyDesc, float64(l.Running), driver, op)
	gauge(out, callDesc, passed(l.OldestCall.Since, time.Now()).Seconds(), driver, op)
	gauge(out, workersDesc, float64(l.Workers), driver, op)
	gauge(out, stuckDesc, float64(l.Stuck), driver, op)
}

func collectConfig(out chan<- prometheus.Metric, c Config) {
	for _, f := range c.Files {
		gauge(out, reloadDesc, truth(f.Rejected == ""), label(f.Path))
	}
	gauge(out, reloadedDesc, unixSeconds(c.LastSuccess))
	gauge(out, hashDesc, hashNumber(c.Hash))
}

// collectConflicts counts the conflicts of served drivers, and of the others, whose number is
// not bounded.
func collectConflicts(out chan<- prometheus.Metric, all []Conflict, engaged map[string]int) {
	unserved := map[string]int{}
	for _, c := range all {
		name := label(c.Driver)
		if _, ok := engaged[name]; ok {
			engaged[name]++
		} else {
			unserved[name]++
		}
	}
	for driver, n := range bounded(unserved) {
		engaged[driver] += n // "other" may be a driver's name
	}
	for driver, n := range engaged {
		gauge(out, conflictsDesc, float64(n), driver)
	}
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// bounded returns the names with the highest counts, and the sum of all others as "other": anybody
// who may create VolumeAttachments can invent names of attachers.
func bounded(counts map[string]int) map[string]int {
	valid := map[string]int{}
	for name, n := range counts {
		valid[label(name)] += n
	}
	if len(valid) <= mostUnknown {
		return valid
	}
	names := slices.SortedFunc(maps.Keys(valid), func(a, b string) int {
		return cmp.Or(cmp.Compare(valid[b], valid[a]), cmp.Compare(a, b))
	})
	sum := 0
	for _, name := range names[mostUnknown:] {
		sum += valid[name]
		delete(valid, name)
	}
	valid[others] += sum
	return valid
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// unixSeconds returns seconds since 1970, 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// hashNumber returns a number for a hash, of as many bits as a sample can hold.
func hashNumber(hash string) float64 {
	if hash == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(hash))
	return float64(binary.BigEndian.Uint64(sum[:]) >> 16)
}
