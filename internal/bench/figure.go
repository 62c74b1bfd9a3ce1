package bench

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
	HeapIdle         Figure = "heapIdleBytes" // in use
	HeapEnd          Figure = "heapEndBytes"
	GoroutinesIdle   Figure = "goroutinesIdle"
	GoroutinesEnd    Figure = "goroutinesEnd"

	GoroutinesPerDriver Figure = "goroutinesPerDriver" // of drivers without work
	HeapPerDriver       Figure = "heapPerDriverBytes"
	ResidentPerDriver   Figure = "residentPerDriverBytes"

	QuietP99              Figure = "quietP99Seconds" // attach latency without a noisy tenant
	TenantP99             Figure = "tenantP99Seconds"
	TenantRatio           Figure = "tenantP99Ratio"
	TenantWaiting         Figure = "tenantWaiting"         // requests of the noisy tenant in queues, at the beginning of its visits
	LeasesLost            Figure = "leasesLost"            // beside the noisy tenant
	FewQuietP99           Figure = "fewQuietP99Seconds"    // QuietP99 of the volumes of UnprotectedP99
	UnprotectedP99        Figure = "unprotectedP99Seconds" // beside the tenant, without the FlowSchemas of deploy/base
	UnprotectedLeasesLost Figure = "unprotectedLeasesLost"

	CrashLast       Figure = "crashLastSeconds" // from SIGKILL of the leading replica until the last volume is attached
	CrashCalls      Figure = "crashCallsPerAttach"
	ExitLast        Figure = "exitLastSeconds" // from SIGTERM
	ExitCalls       Figure = "exitCallsPerAttach"
	RolloutGap      Figure = "rolloutGapSeconds" // the longest time in which one driver got no call
	RolloutAttaches Figure = "rolloutAttaches"
	Violations      Figure = "violations" // that the drivers' books count, such as two calls at once for one volume

	Speed Figure = "machineMegabytesPerSecond" // what the machine hashes, right before and after a turn
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
	{ServerCPU, "of that kube-apiserver, without etcd", hundredths, true},
	{ResidentIdle, "memory idle (RSS)", megabytes, false},
	{ResidentAttached, "memory, all attached (RSS)", megabytes, false},
	{ResidentEnd, "memory at the end (RSS)", megabytes, false},
	{ResidentOwn, "of that without the binary's pages", megabytes, true},
	{ResidentPeak, "memory at most (RSS)", megabytes, false},
	{HeapIdle, "heap in use idle", megabytes, true},
	{HeapEnd, "heap in use at the end", megabytes, true},
	{GoroutinesIdle, "goroutines idle", whole, true},
	{GoroutinesEnd, "goroutines at the end", whole, true},
	{GoroutinesPerDriver, "goroutines of an idle driver", hundredths, false},
	{HeapPerDriver, "heap of an idle driver", megabytes, false},
	{ResidentPerDriver, "memory of an idle driver (RSS)", megabytes, false},
	{Speed, "speed of the machine, MB/s hashed", whole, false},
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
func hundredths(v float64) string { return fmt.Sprintf("%.2f", v) }

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
