package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == BaselineCommand {
		os.Exit(beBaseline(os.Args[2]))
	}
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// beBaseline makes this program the baseline, as testbed is.
func beBaseline(argument string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := RunBaseline(ctx, argument, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// What is counted, and not timed, is the same in each run: it is what the hub promises.
func TestHubNeedsNoMoreWritesAndCallsThanTheFloor(t *testing.T) {
	hub, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub"})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Hub: hub, Progress: t.Output()}
	if o.Testbed, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	tiny := Case{
		Name: "tiny", About: "2 drivers, 3 volumes each", Drivers: 2, Nodes: 2, Volumes: 10, Each: 3,
		Bursts: 1, Rounds: 1, fresh: true, turn: turnOfBursts, Targets: contract(true),
	}
	result, err := measure(t.Context(), o, tiny)
	if err != nil {
		t.Fatal(err)
	}
	want := Figures{AttachWrites: 2, FirstWrites: 3, DetachWrites: 1, AttachCalls: 1, DetachCalls: 1, Reads: 0}
	for _, name := range []string{hubName, baselineName} {
		got := Figures{}
		for f := range want {
			got[f] = result.Medians[name][f]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
		for _, f := range []Figure{AttachRate, DetachRate, AttachP50, ResidentIdle, ResidentEnd, HeapEnd, GoroutinesEnd} {
			if result.Medians[name][f] <= 0 {
				t.Errorf("%s: %s is %v", name, f, result.Medians[name][f])
			}
		}
	}
	if len(result.Verdicts) != len(tiny.Targets) {
		t.Errorf("%d verdicts of %d targets", len(result.Verdicts), len(tiny.Targets))
	}
	t.Logf("%s", result)
}

// The hub reaches each driver through a proxy with mutual TLS, and makes no call more for it.
func TestHubAttachesThroughProxies(t *testing.T) {
	o := Options{Progress: t.Output()}
	var err error
	for command, path := range map[string]*string{"./cmd/csi-attach-hub": &o.Hub, "./cmd/csi-attach-proxy": &o.Proxy} {
		if *path, err = testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: command}); err != nil {
			t.Fatal(err)
		}
	}
	tiny := proxiesCase()
	tiny.Drivers, tiny.Nodes, tiny.Volumes, tiny.Each, tiny.Bursts, tiny.Rounds = 2, 2, 10, 3, 1, 1
	result, err := measure(t.Context(), o, tiny)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Verdicts) != len(tiny.Targets) {
		t.Errorf("%d verdicts of %d targets", len(result.Verdicts), len(tiny.Targets))
	}
	for _, v := range result.Verdicts {
		if !v.Met {
			t.Error(v)
		}
	}
}
