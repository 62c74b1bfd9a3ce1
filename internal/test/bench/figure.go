package main

import "fmt"

// Figure is a measured quantity, by its title in the tables. Its value is a float64 in seconds, in bytes, per second, or a count.
type Figure string

// Figures has the values of one measurement.
type Figures map[Figure]float64

// described has the format of each figure, in the order of the tables.
var described []description

type description struct {
	figure Figure
	show   func(float64) string
}

func figure(title string, show func(float64) string) Figure {
	described = append(described, description{Figure(title), show})
	return Figure(title)
}

// All figures, in the order of the tables. A latency begins with the request that creates or deletes a VolumeAttachment, and ends
// when a watcher sees it attached or gone.
var (
	AttachRate  = figure("attaches per second", whole)
	DetachRate  = figure("detaches per second", whole)
	Ready       = figure("start until ready", duration) // caches filled, connected, leading
	StartCalls  = figure("calls at the start", whole)   // until some seconds after Ready
	StartWrites = figure("API writes at the start", whole)

	OthersP50        = figure("p50 of the others", duration) // attach latency of all drivers but one
	OthersP50Hostile = figure("p50 of the others beside a hostile driver", duration)
	HostileRatio     = figure("p50 of the others, hostile / without", hundredths)

	QuietP99    = figure("attach p99, no noisy tenant", duration)
	TenantP99   = figure("attach p99, noisy tenant", duration)
	TenantRatio = figure("attach p99, noisy tenant / none", hundredths)
	LeasesLost  = figure("leases lost, noisy tenant", whole)

	CrashLast  = figure("last attach after SIGKILL of the leading replica", duration)
	CrashCalls = figure("calls per attach, SIGKILL", hundredths)
	ExitLast   = figure("last attach after SIGTERM of the leading replica", duration)
	ExitCalls  = figure("calls per attach, SIGTERM", hundredths)
	RolloutGap = figure("longest gap between calls of a driver", duration)
	Violations = figure("wrong calls, such as two at once for a volume", whole)

	AttachP50    = figure("attach p50", duration)
	AttachP99    = figure("attach p99", duration)
	DetachP99    = figure("detach p99", duration)
	AttachWrites = figure("API writes per attach", hundredths) // of VolumeAttachments and PersistentVolumes
	DetachWrites = figure("API writes per detach", hundredths)
	Reads        = figure("API reads per operation", hundredths) // lists included, watches not
	AttachCalls  = figure("calls per attach", hundredths)        // publishes and unpublishes
	DetachCalls  = figure("calls per detach", hundredths)
	CPU          = figure("CPU seconds per 1000 operations", hundredths) // attaches and detaches
	PlaneCPU     = figure("CPU seconds of the control plane per 1000 operations", hundredths)

	ResidentIdle     = figure("memory idle (RSS)", megabytes)               // connected, caches filled, nothing to do
	ResidentProxy    = figure("memory of a proxy at rest (RSS)", megabytes) // of the largest proxy
	ResidentAttached = figure("memory, all attached (RSS)", megabytes)
	ResidentEnd      = figure("memory at the end (RSS)", megabytes)
	ResidentPeak     = figure("memory at most (RSS)", megabytes)

	GoroutinesPerDriver = figure("goroutines of an idle driver", hundredths)
	ResidentPerDriver   = figure("memory of an idle driver (RSS)", megabytes)
	ResidentSome        = figure("memory idle, 100 drivers (RSS)", megabytes)
	ResidentMany        = figure("memory idle, all drivers (RSS)", megabytes)
	FleetReady          = figure("start until ready, all drivers", duration)
	LeaseWrites         = figure("writes of leases per second", whole) // counted by the API server
	IdleCPU             = figure("CPU seconds per minute, idle", hundredths)
	IdlePlaneCPU        = figure("CPU seconds per minute of the control plane", hundredths)

	ResidentPerVolume     = figure("memory of a PersistentVolume (RSS)", kilobytes)
	ResidentPerAttachment = figure("memory of a VolumeAttachment (RSS)", kilobytes)
	ResidentPerNode       = figure("memory of a node (RSS)", kilobytes)
	RelistRecovered       = figure("API server ready again until attached", duration) // a volume of each driver
	RelistPeak            = figure("memory at most after a restart of the API server (RSS)", megabytes)
	RelistCalls           = figure("calls after a restart of the API server, more than needed", whole)
	RelistWrites          = figure("API writes after a restart of the API server, more than needed", whole)

	// Times of Pods begin with the request that creates the Pod, bound to its node.
	PodRate        = figure("Pods per second, at once", hundredths) // until node.status.volumesAttached has their volumes
	PodP50         = figure("Pod to node.status p50, at once", duration)
	PodRequestP50  = figure("Pod to VolumeAttachment p50 (kube-controller-manager)", duration)
	PodDispatchP50 = figure("VolumeAttachment to call p50 (attacher)", duration)
	PodPublishP50  = figure("call to attached p50 (driver 50 ms, attacher)", duration)
	PodReportP50   = figure("attached to node.status p50 (kube-controller-manager)", duration)
	ManagerShare   = figure("share of kube-controller-manager, at once", hundredths) // in the time of all Pods
	PodDetachRate  = figure("detaches of deleted Pods per second", hundredths)
	PodDetachP99   = figure("deleted Pod to detached p99", duration)
)

// text formats a value of the figure.
func (f Figure) text(v float64) string {
	for _, d := range described {
		if d.figure == f {
			return d.show(v)
		}
	}
	return hundredths(v)
}

func whole(v float64) string      { return fmt.Sprintf("%.0f", v) }
func hundredths(v float64) string { return fmt.Sprintf("%.2f", v) }
func kilobytes(v float64) string  { return fmt.Sprintf("%.2f kB", v/1e3) }

func megabytes(v float64) string {
	if v < 1e6 {
		return fmt.Sprintf("%.2f MB", v/1e6)
	}
	return fmt.Sprintf("%.1f MB", v/1e6)
}

func duration(v float64) string {
	if v < 1 {
		return fmt.Sprintf("%.0f ms", v*1e3)
	}
	return fmt.Sprintf("%.2f s", v)
}

// target is a bound of one of the hub's figures.
type target struct {
	figure  Figure
	compare string
	value   float64
	ratio   bool // value is a ratio to the baseline
}

func atLeast(f Figure, value float64) target { return target{f, "at least", value, false} }
func atMost(f Figure, value float64) target  { return target{f, "at most", value, false} }
func exactly(f Figure, value float64) target { return target{f, "exactly", value, false} }

// ofBaseline makes the value a ratio to the baseline.
func (t target) ofBaseline() target {
	t.ratio = true
	return t
}

// met compares a value with the target.
func (t target) met(got float64) bool {
	const inexact = 0.005 // the tolerance of exactly
	switch t.compare {
	case "at least":
		return got >= t.value
	case "at most":
		return got <= t.value
	}
	return max(got-t.value, t.value-got) <= inexact
}

// verdict says as a line of text whether samples meet the target; false: the figure was not measured.
func (t target) verdict(s samples) (string, bool) {
	show, of := t.figure.text, ""
	got, measured := s.median(hubName, t.figure)
	if t.ratio {
		var r ratio
		r, measured = s.ratio(t.figure)
		show, of, got = hundredths, " of the baseline", r.median
	}
	word := "met"
	if !t.met(got) {
		word = "**missed**"
	}
	return fmt.Sprintf("%s %s %s%s: %s, %s", t.figure, t.compare, show(t.value), of, show(got), word), measured
}
