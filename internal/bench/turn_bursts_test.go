package bench

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

func TestNoCompetitorIsAlwaysTheFirstOne(t *testing.T) {
	s := &stage{opts: Options{Sidecar: "csi-attacher"}, c: Case{Sidecars: []string{tunedSidecarName}}}
	var first []string
	for round := range 4 {
		all := s.competitors(round)
		if len(all) != 3 {
			t.Errorf("round %d: %d competitors, want 3", round, len(all))
		}
		first = append(first, all[0].name)
	}
	if first[0] != hubName || first[1] != tunedSidecarName || first[2] != hubName || first[3] != tunedSidecarName {
		t.Errorf("the first ones are %v", first)
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
