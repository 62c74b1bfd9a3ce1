package main

import (
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/procfs"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// usage is the sum of what the processes of a competitor take. A negative value is unknown:
// csi-attacher does not report its heap.
type usage struct {
	cpu        float64 // seconds since the start
	resident   float64 // bytes
	own        float64 // resident bytes without pages of files
	peak       float64 // bytes, the sum of the peaks of each process since its start
	heap       float64 // bytes in use
	goroutines float64
}

func (u *usage) add(other usage) {
	u.cpu += other.cpu
	u.resident += other.resident
	u.own += other.own
	u.peak += other.peak
	if u.heap += other.heap; other.heap < 0 {
		u.heap = -1
	}
	if u.goroutines += other.goroutines; other.goroutines < 0 {
		u.goroutines = -1
	}
}

// processUsage reads what the kernel knows of a process.
func processUsage(pid int) (usage, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	stat, err := process.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return usage{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return usage{cpu: stat.CPUTime(), resident: float64(status.VmRSS), own: float64(status.RssAnon), peak: float64(status.VmHWM), heap: -1, goroutines: -1}, nil
}

// sum returns the sum of the values of a gauge; -1: there is none.
func sum(family *dto.MetricFamily) float64 {
	if family == nil {
		return -1
	}
	return testbed.SumMetric(family)
}
