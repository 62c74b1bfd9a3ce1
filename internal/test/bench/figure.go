package main

import (
	"fmt"
	"math"
	"time"
)

// Figure names a measured quantity. Its value is a float64 in seconds, in bytes, per second, or a
// count.
type Figure string

// All figures. A latency begins with the request that creates or deletes a VolumeAttachment, and ends
// when a watcher sees it attached or gone.
const (
	AttachRate       Figure = "attachesPerSecond"
	DetachRate       Figure = "detachesPerSecond"
	FirstAttachRate  Figure = "firstAttachesPerSecond" // of volumes without the finalizer
	Ready            Figure = "readySeconds"           // from the start of the process: caches filled, connected, leading
	ReadyCPU         Figure = "readyCPUSeconds"        // until Ready
	StartCalls       Figure = "startCalls"             // publishes and unpublishes, until some seconds after Ready
	StartWrites      Figure = "startWrites"            // as AttachWrites
	StartReads       Figure = "startReads"
	DispatchP50      Figure = "dispatchP50Seconds" // from the request that creates a VolumeAttachment until the driver is called
	DispatchP99      Figure = "dispatchP99Seconds"
	OthersP50        Figure = "othersP50Seconds" // attach latency of all drivers but one
	OthersP50Hanging Figure = "othersP50HangingSeconds"
	OthersP99        Figure = "othersP99Seconds"
	OthersP99Hanging Figure = "othersP99HangingSeconds"
	HangingRatio     Figure = "othersP99HangingRatio"
	OthersP50Hostile Figure = "othersP50HostileSeconds"
	OthersP99Hostile Figure = "othersP99HostileSeconds"
	HostileRatio     Figure = "othersP50HostileRatio"
	AttachP50        Figure = "attachP50Seconds"
	AttachP99        Figure = "attachP99Seconds"
	AttachMax        Figure = "attachMaxSeconds"
	DetachP50        Figure = "detachP50Seconds"
	DetachP99        Figure = "detachP99Seconds"
	DetachMax        Figure = "detachMaxSeconds"
	AttachWrites     Figure = "writesPerAttach" // of VolumeAttachments and PersistentVolumes
	FirstWrites      Figure = "writesPerFirstAttach"
	DetachWrites     Figure = "writesPerDetach"
	Reads            Figure = "readsPerOperation" // lists included, watches not
	OtherWrites      Figure = "otherWrites"       // total, such as leases and Events
	AttachCalls      Figure = "callsPerAttach"    // publishes and unpublishes
	DetachCalls      Figure = "callsPerDetach"
	CPU              Figure = "cpuSecondsPerThousand"       // attaches and detaches
	PlaneCPU         Figure = "planeCPUSecondsPerThousand"  // of kube-apiserver and etcd, while volumes are attached and detached
	ServerCPU        Figure = "serverCPUSecondsPerThousand" // the part of kube-apiserver
	ResidentIdle     Figure = "residentIdleBytes"           // connected, caches filled, nothing to do
	ResidentAttached Figure = "residentAttachedBytes"       // all volumes attached
	ResidentEnd      Figure = "residentEndBytes"
	ResidentOwn      Figure = "residentOwnEndBytes" // ResidentEnd without pages of files, such as the binary
	ResidentPeak     Figure = "residentPeakBytes"
	ResidentProxy    Figure = "residentProxyBytes" // of the largest proxy, before the first attach
	HeapIdle         Figure = "heapIdleBytes"      // in use
	HeapEnd          Figure = "heapEndBytes"
	GoroutinesIdle   Figure = "goroutinesIdle"
	GoroutinesEnd    Figure = "goroutinesEnd"

	GoroutinesPerDriver Figure = "goroutinesPerDriver" // of a driver without work
	HeapPerDriver       Figure = "heapPerDriverBytes"
	ResidentPerDriver   Figure = "residentPerDriverBytes"

	// Many drivers without work.
	ResidentSome          Figure = "residentSomeDriversBytes"     // with someDrivers
	ResidentMany          Figure = "residentManyDriversBytes"     // with all drivers of the case, as all below
	FleetReady            Figure = "fleetReadySeconds"            // from the start of the process until it leads all drivers
	LeaseWrites           Figure = "leaseWritesPerSecond"         // counted by the API server
	LeaseBurst            Figure = "leaseRenewalsPer100ms"        // at most
	LeaseAge              Figure = "leaseAgeSeconds"              // longest time since a renewal
	IdleCPU               Figure = "idleCPUSecondsPerMinute"      // of the hub
	IdlePlaneCPU          Figure = "idlePlaneCPUSecondsPerMinute" // of the control plane
	PageSeconds           Figure = "pageSeconds"                  // GET /
	PageBytes             Figure = "pageBytes"
	APISeconds            Figure = "apiSeconds" // GET /api/v1/drivers
	APIBytes              Figure = "apiBytes"
	MetricsSeconds        Figure = "metricsSeconds" // GET /metrics
	MetricsBytes          Figure = "metricsBytes"
	MetricsSeries         Figure = "metricsSeries"
	StatusSeconds         Figure = "statusSeconds"      // csi-attach-hub status
	Balance               Figure = "balanceSeconds"     // from the start of a second replica until they share the drivers
	BalanceWrites         Figure = "balanceLeaseWrites" // of leases until then, renewals included
	TwoLeaseWrites        Figure = "twoReplicasLeaseWritesPerSecond"
	TwoCPU                Figure = "twoReplicasCPUSecondsPerMinute" // of both, idle
	ResidentPerVolume     Figure = "residentPerPersistentVolumeBytes"
	ResidentPerAttachment Figure = "residentPerVolumeAttachmentBytes"
	ResidentPerNode       Figure = "residentPerNodeBytes"   // of its CSINode
	RelistRecovered       Figure = "relistRecoveredSeconds" // from when the new API server is ready until a volume of each driver is attached
	RelistPeak            Figure = "relistPeakBytes"
	RelistCalls           Figure = "relistCalls"  // more than these attaches need
	RelistWrites          Figure = "relistWrites" // likewise
	RelistReads           Figure = "relistReads"
	TakeoverCrash         Figure = "takeoverCrashSeconds" // from the end of a replica that leads half of the drivers until all have a leader
	TakeoverStop          Figure = "takeoverStopSeconds"
	TakeoverLed           Figure = "takeoverLedDrivers"      // by a replica that should lead all, when it is killed
	TakeoverAll           Figure = "takeoverAllSeconds"      // from its end until all drivers have a leader
	TakeoverCall          Figure = "takeoverCallSeconds"     // from its end until the first publish
	TakeoverAttached      Figure = "takeoverAttachedSeconds" // from its end until a volume of each driver is attached
	TakeoverCalls         Figure = "takeoverCalls"
	TakeoverWrites        Figure = "takeoverWrites"
	StreamReady           Figure = "streamReadySeconds" // of a hub that gets all objects as a stream (WatchList)
	StreamPeak            Figure = "streamPeakBytes"
	ListReady             Figure = "listReadySeconds" // of a hub that lists all objects
	ListPeak              Figure = "listPeakBytes"

	QuietP99              Figure = "quietP99Seconds" // attach latency without a noisy tenant
	TenantP99             Figure = "tenantP99Seconds"
	TenantRatio           Figure = "tenantP99Ratio"
	TenantWaiting         Figure = "tenantWaiting"         // requests of the noisy tenant in queues, at the beginning of its visits
	LeasesLost            Figure = "leasesLost"            // beside the noisy tenant
	FewQuietP99           Figure = "fewQuietP99Seconds"    // QuietP99 of the volumes of UnprotectedP99
	UnprotectedP99        Figure = "unprotectedP99Seconds" // beside the tenant, without the FlowSchemas of deploy/install.yaml
	UnprotectedLeasesLost Figure = "unprotectedLeasesLost"

	Speed    Figure = "machineMegabytesPerSecond" // what the machine hashes, right before and after a turn
	TurnTook Figure = "turnSeconds"               // the whole turn, with its start and preparation

	// Times of Pods begin with the request that creates the Pod, bound to its node.
	PodRate            Figure = "podsPerSecond" // until node.status.volumesAttached has their volumes
	PodP50             Figure = "podP50Seconds" // as PodRate
	PodP99             Figure = "podP99Seconds"
	PodRequestP50      Figure = "podRequestP50Seconds" // until the VolumeAttachment exists
	PodRequestP99      Figure = "podRequestP99Seconds"
	PodDispatchP50     Figure = "podDispatchP50Seconds" // from then until the driver is called
	PodDispatchP99     Figure = "podDispatchP99Seconds"
	PodPublishP50      Figure = "podPublishP50Seconds" // from then until status.attached
	PodPublishP99      Figure = "podPublishP99Seconds"
	PodReportP50       Figure = "podReportP50Seconds" // from then until node.status.volumesAttached
	PodReportP99       Figure = "podReportP99Seconds"
	ManagerShare       Figure = "managerShare" // of kube-controller-manager in the time of all Pods
	SteadyPodP50       Figure = "steadyPodP50Seconds"
	SteadyPodP99       Figure = "steadyPodP99Seconds"
	SteadyManagerShare Figure = "steadyManagerShare"
	PodDetachRate      Figure = "podDetachesPerSecond" // from the request that deletes the Pod until the VolumeAttachment is gone
	PodDetachP50       Figure = "podDetachP50Seconds"
	PodDetachP99       Figure = "podDetachP99Seconds"
	CrashLast          Figure = "crashLastSeconds" // from SIGKILL of the leading replica until the last volume is attached
	CrashCalls         Figure = "crashCallsPerAttach"
	ExitLast           Figure = "exitLastSeconds" // from SIGTERM
	ExitCalls          Figure = "exitCallsPerAttach"
	RolloutGap         Figure = "rolloutGapSeconds" // the longest time in which one driver got no call
	RolloutAttaches    Figure = "rolloutAttaches"
	Violations         Figure = "violations" // that the drivers' books count, such as two calls at once for one volume
)

// unit formats a value.
type unit func(float64) string

type description struct {
	figure Figure
	title  string
	show   unit
	detail bool // left out of Markdown
}

// described has the title and format of each figure, in the order of the tables.
var described = []description{
	{AttachRate, "attaches per second", whole, false},
	{DetachRate, "detaches per second", whole, false},
	{FirstAttachRate, "first attaches per second", whole, true},
	{Ready, "start until ready", duration, false},
	{ReadyCPU, "CPU until ready", duration, true},
	{StartCalls, "calls at the start", whole, false},
	{StartWrites, "API writes at the start", whole, false},
	{StartReads, "API reads at the start", whole, true},
	{DispatchP50, "creation until the driver is called p50", duration, true},
	{DispatchP99, "creation until the driver is called p99", duration, false},
	{OthersP50, "p50 of the others", duration, true},
	{OthersP50Hanging, "p50 of the others while one hangs", duration, true},
	{OthersP99, "p99 of the others", duration, false},
	{OthersP99Hanging, "p99 of the others while one hangs", duration, false},
	{HangingRatio, "p99 of the others, hanging / without", hundredths, false},
	{OthersP50Hostile, "p50 of the others beside a hostile driver", duration, false},
	{OthersP99Hostile, "p99 of the others beside a hostile driver", duration, true},
	{HostileRatio, "p50 of the others, hostile / without", hundredths, false},
	{QuietP99, "attach p99, no noisy tenant", duration, false},
	{TenantP99, "attach p99, noisy tenant", duration, false},
	{TenantRatio, "attach p99, noisy tenant / none", hundredths, false},
	{FewQuietP99, "attach p99 of 100 volumes, no noisy tenant", duration, false},
	{UnprotectedP99, "attach p99 of 100 volumes, noisy tenant, no FlowSchemas", duration, false},
	{LeasesLost, "leases lost, noisy tenant", whole, false},
	{UnprotectedLeasesLost, "leases lost, noisy tenant, no FlowSchemas", whole, false},
	{TenantWaiting, "waiting requests of the noisy tenant", whole, false},
	{CrashLast, "last attach after SIGKILL of the leading replica", duration, false},
	{CrashCalls, "calls per attach, SIGKILL", hundredths, false},
	{ExitLast, "last attach after SIGTERM of the leading replica", duration, false},
	{ExitCalls, "calls per attach, SIGTERM", hundredths, false},
	{RolloutGap, "longest gap between calls of a driver", duration, false},
	{RolloutAttaches, "attaches during the rolling update", whole, true},
	{Violations, "wrong calls, such as two at once for a volume", whole, false},
	{AttachP50, "attach p50", duration, true},
	{AttachP99, "attach p99", duration, false},
	{AttachMax, "attach max", duration, true},
	{DetachP50, "detach p50", duration, true},
	{DetachP99, "detach p99", duration, false},
	{DetachMax, "detach max", duration, true},
	{AttachWrites, "API writes per attach", hundredths, false},
	{FirstWrites, "API writes per first attach", hundredths, false},
	{DetachWrites, "API writes per detach", hundredths, false},
	{Reads, "API reads per operation", hundredths, true},
	{OtherWrites, "other API writes (leases, Events)", whole, true},
	{AttachCalls, "calls per attach", hundredths, false},
	{DetachCalls, "calls per detach", hundredths, false},
	{CPU, "CPU seconds per 1000 operations", hundredths, false},
	{PlaneCPU, "CPU seconds of the control plane per 1000 operations", hundredths, false},
	{ServerCPU, "CPU seconds of kube-apiserver per 1000 operations", hundredths, true},
	{ResidentIdle, "memory idle (RSS)", megabytes, false},
	{ResidentProxy, "memory of a proxy at rest (RSS)", megabytes, false},
	{ResidentAttached, "memory, all attached (RSS)", megabytes, false},
	{ResidentEnd, "memory at the end (RSS)", megabytes, false},
	{ResidentOwn, "memory at the end without pages of files", megabytes, true},
	{ResidentPeak, "memory at most (RSS)", megabytes, false},
	{HeapIdle, "heap in use idle", megabytes, true},
	{HeapEnd, "heap in use at the end", megabytes, true},
	{GoroutinesIdle, "goroutines idle", whole, true},
	{GoroutinesEnd, "goroutines at the end", whole, true},
	{GoroutinesPerDriver, "goroutines of an idle driver", hundredths, false},
	{HeapPerDriver, "heap of an idle driver", megabytes, false},
	{ResidentPerDriver, "memory of an idle driver (RSS)", megabytes, false},
	{ResidentSome, "memory idle, 100 drivers (RSS)", megabytes, false},
	{ResidentMany, "memory idle, all drivers (RSS)", megabytes, false},
	{FleetReady, "start until ready, all drivers", duration, false},
	{LeaseWrites, "writes of leases per second", whole, false},
	{LeaseBurst, "renewals of leases in 100 ms, at most", whole, false},
	{LeaseAge, "longest time since a renewal", duration, false},
	{IdleCPU, "CPU seconds per minute, idle", hundredths, false},
	{IdlePlaneCPU, "CPU seconds per minute of the control plane", hundredths, false},
	{PageSeconds, "status page", duration, false},
	{PageBytes, "size of the status page", megabytes, false},
	{APISeconds, "drivers by the HTTP API", duration, false},
	{APIBytes, "size of the drivers by the HTTP API", megabytes, false},
	{MetricsSeconds, "scrape of the metrics", duration, false},
	{MetricsBytes, "size of the metrics", megabytes, false},
	{MetricsSeries, "series of metrics", whole, false},
	{StatusSeconds, "csi-attach-hub status", duration, false},
	{Balance, "start of a second replica until both share the drivers", duration, false},
	{BalanceWrites, "writes of leases until both share the drivers", whole, false},
	{TwoLeaseWrites, "writes of leases per second, two replicas", whole, false},
	{TwoCPU, "CPU seconds per minute of both, idle", hundredths, false},
	{ResidentPerVolume, "memory of a PersistentVolume (RSS)", kilobytes, false},
	{ResidentPerAttachment, "memory of a VolumeAttachment (RSS)", kilobytes, false},
	{ResidentPerNode, "memory of a node (RSS)", kilobytes, false},
	{RelistRecovered, "API server ready again until attached", duration, false},
	{RelistPeak, "memory at most after a restart of the API server (RSS)", megabytes, false},
	{RelistCalls, "calls after a restart of the API server, more than needed", whole, false},
	{RelistWrites, "API writes after a restart of the API server, more than needed", whole, false},
	{RelistReads, "API reads after a restart of the API server", whole, true},
	{TakeoverCrash, "takeover of half of the drivers after SIGKILL", duration, false},
	{TakeoverStop, "takeover of half of the drivers after SIGTERM", duration, false},
	{TakeoverLed, "drivers of a replica that gets SIGKILL as the only leader", whole, false},
	{TakeoverAll, "takeover of all its drivers", duration, false},
	{TakeoverCall, "first call after its end", duration, false},
	{TakeoverAttached, "a volume of each of its drivers attached after its end", duration, false},
	{StreamReady, "start until ready, objects streamed (WatchList)", duration, false},
	{StreamPeak, "memory at most at the start, objects streamed (RSS)", megabytes, false},
	{ListReady, "start until ready, objects listed", duration, false},
	{ListPeak, "memory at most at the start, objects listed (RSS)", megabytes, false},
	{TakeoverCalls, "calls by takeovers", whole, false},
	{TakeoverWrites, "API writes by takeovers", whole, false},
	{PodRate, "Pods per second, at once", tenths, false},
	{PodP50, "Pod to node.status p50, at once", duration, false},
	{PodP99, "Pod to node.status p99, at once", duration, false},
	{PodRequestP50, "Pod to VolumeAttachment p50 (kube-controller-manager)", duration, false},
	{PodRequestP99, "Pod to VolumeAttachment p99 (kube-controller-manager)", duration, false},
	{PodDispatchP50, "VolumeAttachment to call p50 (attacher)", duration, false},
	{PodDispatchP99, "VolumeAttachment to call p99 (attacher)", duration, false},
	{PodPublishP50, "call to attached p50 (driver 50 ms, attacher)", duration, false},
	{PodPublishP99, "call to attached p99 (driver 50 ms, attacher)", duration, false},
	{PodReportP50, "attached to node.status p50 (kube-controller-manager)", duration, false},
	{PodReportP99, "attached to node.status p99 (kube-controller-manager)", duration, false},
	{ManagerShare, "share of kube-controller-manager, at once", hundredths, false},
	{SteadyPodP50, "Pod to node.status p50, 5 Pods per second", duration, false},
	{SteadyPodP99, "Pod to node.status p99, 5 Pods per second", duration, false},
	{SteadyManagerShare, "share of kube-controller-manager, 5 Pods per second", hundredths, false},
	{PodDetachRate, "detaches of deleted Pods per second", tenths, false},
	{PodDetachP50, "deleted Pod to detached p50", duration, true},
	{PodDetachP99, "deleted Pod to detached p99", duration, false},
	{Speed, "speed of the machine, MB/s hashed", whole, false},
	{TurnTook, "length of a turn", duration, true},
}

// descriptionOf returns the description of a figure. It panics if there is none.
func descriptionOf(f Figure) description {
	for _, d := range described {
		if d.figure == f {
			return d
		}
	}
	panic("figure is not described: " + f)
}

func whole(v float64) string      { return fmt.Sprintf("%.0f", v) }
func tenths(v float64) string     { return fmt.Sprintf("%.1f", v) }
func hundredths(v float64) string { return fmt.Sprintf("%.2f", v) }

func kilobytes(v float64) string { return fmt.Sprintf("%.2f kB", v/1e3) }

func megabytes(v float64) string {
	if math.Abs(v) < 1e6 {
		return fmt.Sprintf("%.2f MB", v/1e6)
	}
	return fmt.Sprintf("%.1f MB", v/1e6)
}

func duration(v float64) string {
	d := time.Duration(v * float64(time.Second))
	if d < time.Second {
		return fmt.Sprintf("%.0f ms", v*1e3)
	}
	return fmt.Sprintf("%.2f s", v)
}
