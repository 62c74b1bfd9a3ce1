package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/prometheus/procfs"
)

// planeCPU is CPU time of the control plane, in seconds. Part of it serves bench itself: its
// watch, and the requests that create and delete VolumeAttachments. That part is the same for
// all competitors.
type planeCPU struct {
	server float64 // kube-apiserver
	etcd   float64
}

func (c planeCPU) minus(before planeCPU) planeCPU {
	return planeCPU{server: c.server - before.server, etcd: c.etcd - before.etcd}
}

// readPlaneCPU returns the CPU time since the start of a control plane without controllers. pid is
// its process, which runs etcd. kube-apiserver is the only child of that process.
func readPlaneCPU(pid int) (planeCPU, error) {
	etcd, err := processUsage(pid)
	if err != nil {
		return planeCPU{}, err
	}
	all, err := procfs.AllProcs()
	if err != nil {
		return planeCPU{}, fmt.Errorf("list processes: %w", err)
	}
	for _, process := range all {
		stat, err := process.Stat()
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH): // it has ended since
		case err != nil:
			return planeCPU{}, fmt.Errorf("look at process %d: %w", process.PID, err)
		case stat.PPID == pid:
			return planeCPU{server: stat.CPUTime(), etcd: etcd.cpu}, nil
		}
	}
	return planeCPU{}, fmt.Errorf("find kube-apiserver: process %d has no child", pid)
}
