package main

import (
	"math"
	"testing"
	"time"
)

func TestCallsThatNobodyNeedsCountToo(t *testing.T) {
	took := timing{elapsed: time.Second, took: make([]time.Duration, 2)}
	f := burst{
		attach: phase{timing: took, calls: calls{publish: 2, unpublish: 1}},
		detach: phase{timing: took, calls: calls{publish: 2, unpublish: 2}},
	}.figures()
	if f[AttachCalls] != 1.5 || f[DetachCalls] != 2 {
		t.Errorf("%v calls of an attach, %v of a detach, want 1.5 and 2", f[AttachCalls], f[DetachCalls])
	}
}

func TestControlPlaneCPUIsPerOperation(t *testing.T) {
	took := timing{elapsed: time.Second, took: make([]time.Duration, 50)}
	f := burst{
		attach: phase{timing: took, plane: planeCPU{server: 0.2, etcd: 0.1}},
		detach: phase{timing: took, plane: planeCPU{server: 0.1, etcd: 0.1}},
	}.figures()
	if got := [2]float64{f[PlaneCPU], f[ServerCPU]}; math.Abs(got[0]-5) > 1e-9 || math.Abs(got[1]-3) > 1e-9 {
		t.Errorf("CPU seconds of the control plane and of kube-apiserver: %v, want 5 and 3", got)
	}
}
