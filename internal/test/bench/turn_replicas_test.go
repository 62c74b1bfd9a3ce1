package main

import (
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// measureTiny measures a small variant of a case that starts replicas, with the hub alone.
func measureTiny(t *testing.T, c Case) Figures {
	t.Helper()
	hub, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	c.Drivers, c.Volumes, c.Rounds = 4, 50, 1 // of fewer than four drivers one replica may get all
	result, err := measure(t.Context(), Options{Hub: hub, Progress: t.Output()}, c)
	if err != nil {
		t.Fatal(err)
	}
	return result.Medians[hubName]
}

func TestAnotherReplicaOfTheHubFinishesABurst(t *testing.T) {
	got := measureTiny(t, failoverCase())
	if got[CrashLast] <= 0 || got[ExitLast] <= 0 {
		t.Errorf("last attach %v s after SIGKILL, and %v s after SIGTERM", got[CrashLast], got[ExitLast])
	}
	if got[CrashCalls] < 1 || got[ExitCalls] != 1 {
		t.Errorf("%v calls per attach after SIGKILL, want at least 1; %v after SIGTERM, want 1", got[CrashCalls], got[ExitCalls])
	}
}

func TestRollingUpdateOfTheHubLosesAndRepeatsNothing(t *testing.T) {
	got := measureTiny(t, rolloutCase())
	if got[AttachCalls] != 1 || got[DetachCalls] != 1 || got[Violations] != 0 {
		t.Errorf("%v calls per attach, %v per detach, %v violations, want 1, 1 and 0", got[AttachCalls], got[DetachCalls], got[Violations])
	}
	if got[RolloutGap] <= 0 {
		t.Errorf("longest gap %v s, want one that was measured", got[RolloutGap])
	}
}

func TestSharedVolumesAreAttachedToAllNodesAtOnce(t *testing.T) {
	c := sharedCase()
	c.alone, c.Bursts, c.Nodes, c.Targets = true, 1, 5, nil
	got := measureTiny(t, c)
	if got[AttachCalls] != 1 || got[AttachWrites] != 2 {
		t.Errorf("%v calls and %v writes per attach, want 1 and 2", got[AttachCalls], got[AttachWrites])
	}
}

func TestGapIsTheLongestTimeBetweenTheBeginsOfCalls(t *testing.T) {
	began := time.Now()
	call := func(m fakecsi.Method, after time.Duration) fakecsi.Call {
		return fakecsi.Call{Method: m, Start: began.Add(after * time.Second)}
	}
	calls := []fakecsi.Call{ // in the order of their ends
		call(fakecsi.ControllerPublishVolume, -9),
		call(fakecsi.ControllerPublishVolume, 2),
		call(fakecsi.Probe, 4),
		call(fakecsi.ControllerUnpublishVolume, 7),
		call(fakecsi.ControllerPublishVolume, 3),
	}
	if got := gap(calls, began); got != 4*time.Second {
		t.Errorf("gap %v, want the 4 s from the second publish to the unpublish", got)
	}
	if got := gap(calls, began.Add(4*time.Second)); got != 3*time.Second {
		t.Errorf("gap %v, want the 3 s until the first call that counts", got)
	}
	if got := gap(calls, began.Add(8*time.Second)); got != 0 {
		t.Errorf("gap %v without a call, want 0", got)
	}
}
