package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// settleEvery and settleFor bound the wait until the API server has counted the last
	// requests: it counts a request after its answer, and watchers may see the change before.
	settleEvery = 100 * time.Millisecond
	settleFor   = 3 * time.Second
)

// counts is what was asked of the API server and of the drivers since their start.
type counts struct {
	requests testbed.RequestCounts
	calls    calls
}

// calls counts publishes and unpublishes, and what a correct attacher never does, such as two calls at once for one volume.
type calls struct{ publish, unpublish, violations int }

// work is what an attacher has asked for in some time.
type work struct {
	calls
	writes int // of VolumeAttachments and PersistentVolumes
	reads  int
}

// count counts, once the API server has counted all requests of attachers.
func (s *stage) count(ctx context.Context) (counts, error) {
	last, err := s.Plane.Requests(ctx)
	for range settleFor / settleEvery {
		if err = errors.Join(err, pause(ctx, settleEvery)); err != nil {
			return counts{}, err
		}
		before := counts{requests: last}
		last, err = s.Plane.Requests(ctx)
		if w := (counts{requests: last}).since(before); w.writes+w.reads == 0 {
			break
		}
	}
	return counts{last, s.countCalls()}, err
}

func (s *stage) countCalls() (sum calls) {
	for _, d := range s.Drivers {
		books := d.Backend.Books()
		sum.publish += books.Methods[fakecsi.ControllerPublishVolume].Begun
		sum.unpublish += books.Methods[fakecsi.ControllerUnpublishVolume].Begun
		sum.violations += books.ViolationCount
	}
	return sum
}

func (c calls) minus(before calls) calls {
	return calls{c.publish - before.publish, c.unpublish - before.unpublish, c.violations - before.violations}
}

// all returns the sum: an attach should make no unpublish, and a detach no publish.
func (c calls) all() int { return c.publish + c.unpublish }

// since returns the work between two counts. This program itself creates and deletes VolumeAttachments but never changes
// one, and the control plane has no controllers.
func (c counts) since(before counts) work {
	diff := c.requests.Since(before.requests)
	return work{
		calls:  c.calls.minus(before.calls),
		writes: diff.Sum(func(k testbed.RequestKey) bool { return attachers(k) && testbed.IsWrite(k) }),
		reads:  diff.Sum(func(k testbed.RequestKey) bool { return attachers(k) && !testbed.IsWrite(k) }),
	}
}

// attachers reports whether only attachers make such requests. It leaves out leases, Events and watches.
func attachers(k testbed.RequestKey) bool {
	switch k.Resource {
	case "volumeattachments", "persistentvolumes":
		switch k.Verb {
		case "PATCH", "PUT", "APPLY", "GET", "LIST":
			return true
		}
	case "csinodes", "csidrivers", "nodes", "secrets":
		return k.Verb == "GET" || k.Verb == "LIST"
	}
	return false
}

// usage is what one or more processes take.
type usage struct {
	cpu      float64 // seconds since the start
	resident float64 // bytes
	peak     float64 // bytes, the sum of the peaks of each process since its start
}

// processUsage reads what the kernel knows of a process. That is nothing if it has ended, which attacher.whileRuns reports.
func processUsage(pid int) usage {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}
	}
	stat, _ := process.Stat()
	status, _ := process.NewStatus()
	return usage{cpu: stat.CPUTime(), resident: float64(status.VmRSS), peak: float64(status.VmHWM)}
}

// planeCPU returns the CPU seconds of a control plane without controllers. pid is its process, which runs etcd. kube-apiserver is
// the only child of that process. Part of it serves bench: its watch, and the requests that create and delete
// VolumeAttachments. That part is the same for all competitors.
func planeCPU(pid int) (float64, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, process := range all {
		stat, err := process.Stat()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH): // it has ended since
		case err != nil:
			return 0, fmt.Errorf("look at process %d: %w", process.PID, err)
		case stat.PPID == pid:
			return stat.CPUTime() + processUsage(pid).cpu, nil
		}
	}
	return 0, fmt.Errorf("find kube-apiserver: process %d has no child", pid)
}
