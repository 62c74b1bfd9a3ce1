package main

import (
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// The turn fails unless requests of the tenant wait for seats of workload-low at the beginning and at the end.
func TestHubAttachesAndKeepsItsLeasesWhileANoisyTenantSaturatesWorkloadLow(t *testing.T) {
	hub, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	tiny := Case{
		Name: "tiny", About: "2 drivers, 3 volumes each", Drivers: 2, Nodes: 2, Volumes: 10, Each: 3,
		Bursts: 1, Rounds: 1, alone: true, fair: true, tenantFor: 1, prepare: prepareTenant, turn: turnBesideTenant,
		Targets: []Target{Exactly(LeasesLost, 0)},
	}
	result, err := measure(t.Context(), Options{Hub: hub, Progress: t.Output()}, tiny)
	if err != nil {
		t.Fatal(err)
	}
	got := result.Medians[hubName]
	if got[LeasesLost] != 0 || got[TenantP99] <= 0 || got[QuietP99] <= 0 || got[TenantWaiting] < tenantWaiting {
		t.Errorf("figures: %v", got)
	}
}
