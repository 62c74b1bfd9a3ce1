package reconcile

import (
	"testing"

	"golang.org/x/time/rate"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestBudgetOfWritesFollowsTheSettings(t *testing.T) {
	d := routed(t)
	if d.budget.Limit() != rate.Inf {
		t.Errorf("%v writes per second, want no limit by default", d.budget.Limit())
	}
	value := d.Settings()
	value.KubeAPI = registry.KubeAPI{QPS: 0.001, Burst: 2}
	d.SetLimits(value)
	for range 2 {
		if !d.budget.Allow() {
			t.Error("a write within the burst has to wait")
		}
	}
	if d.budget.Allow() {
		t.Error("a write beyond the budget passes")
	}
	value.KubeAPI = registry.KubeAPI{}
	d.SetLimits(value)
	if !d.budget.Allow() {
		t.Error("a write has to wait for a limit that was taken away")
	}
}
