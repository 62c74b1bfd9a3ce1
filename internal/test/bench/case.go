package main

import (
	"context"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// latency is the time that each driver takes for a publish or unpublish.
const latency = 50 * time.Millisecond

// Case is one benchmark: its size, and how it is measured.
type Case struct {
	Name    string
	About   string // for people
	Drivers int
	Nodes   int
	Volumes int           // PersistentVolumes, roughly
	Each    int           // volumes of each driver that are attached at once
	Workers int           // in drivers.yaml; 0: the default of the hub
	Drift   time.Duration // drift.interval in drivers.yaml; 0: the default of the hub
	Bursts  int           // in each turn of hub and baseline
	Rounds  int
	// SidecarRounds is in how many of the rounds csi-attacher takes part, if there is a binary: it takes minutes.
	SidecarRounds int
	Targets       []target

	tunedOnly bool // csi-attacher takes part with tuned flags only, as it would take too long with its default flags
	alone     bool // without the baseline
	booked    bool // the drivers' books keep a list of calls
	replicas  bool // the turn ends the hub, and starts further replicas
	proxied   bool // the hub reaches the drivers through proxies
	// fair means that API Priority and Fairness is on, and competitors run as ServiceAccounts: the hub as that of deploy/install.yaml.
	fair bool
	// prepare (may be nil) runs once before all turns.
	prepare func(context.Context, *stage) error
	// turn measures a running competitor.
	turn func(context.Context, *stage, *attacher) (Figures, error)
}

// cases returns all cases in the order in which they are measured.
func cases() []Case {
	// The writes and calls that the hub promises.
	contract := []target{exactly(AttachWrites, 2), exactly(DetachWrites, 1), exactly(AttachCalls, 1), exactly(DetachCalls, 1), exactly(Reads, 0)}
	asBaseline := append(contract[:5:5], atLeast(AttachRate, 0.95).ofBaseline(), atLeast(DetachRate, 0.95).ofBaseline(), atMost(CPU, 1.2).ofBaseline())
	return []Case{
		{
			Name: "10x50", About: "10 drivers, 50 volumes each, all at once; 2,500 PersistentVolumes",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Workers: 100,
			Bursts: 3, Rounds: 12, SidecarRounds: 2, turn: turnOfBursts, Targets: append(asBaseline[:8:8], atMost(ResidentEnd, 85e6)),
		},
		{
			Name: "10x500", About: "10 drivers, 500 volumes each, all at once; 20,000 PersistentVolumes",
			Drivers: 10, Nodes: 50, Volumes: 20000, Each: 500, Workers: 100, tunedOnly: true,
			Bursts: 1, Rounds: 12, SidecarRounds: 2, turn: turnOfBursts, Targets: append(asBaseline[:8:8], atMost(ResidentAttached, 130e6)),
		},
		{
			Name: "one-hostile", About: "9 drivers, 50 volumes each, one after the other; while a tenth attaches 50 too, and while it answers with as much as it can",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Drift: 5 * time.Second,
			// Without csi-attacher: it refuses such answers, as it takes 4 MiB, and then waits up to five minutes for the next try.
			Bursts: 3, Rounds: 2, alone: true, turn: turnOfHostile, Targets: []target{atMost(HostileRatio, 1.1), atMost(ResidentPeak, 250e6)},
		},
		{
			Name: "noisy-tenant", About: "10 drivers, 50 volumes each, all at once; while a ServiceAccount saturates workload-low, and while it does not",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50,
			Bursts: 4, Rounds: 2, alone: true, fair: true, prepare: prepareTenant, turn: turnOfTenant,
			Targets: []target{atMost(TenantRatio, 1.1), exactly(LeasesLost, 0)},
		},
		podsCase("pods", "with default flags"),
		podsCase("pods-tuned", "with "+strings.Join(testbed.QuickManager, " "), testbed.QuickManager...),
		{
			// Memory is that of hub and proxies together, beside ten csi-attachers.
			Name: "proxies", About: "10 drivers behind 10 proxies, 50 volumes each, all at once; 2,500 PersistentVolumes",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Workers: 100,
			Bursts: 3, Rounds: 2, SidecarRounds: 1, alone: true, proxied: true, turn: turnOfBursts,
			Targets: append(contract[:5:5], atMost(ResidentProxy, 16*(1<<20)), atMost(ResidentPeak, 250e6)),
		},
		{
			// A call that a killed process had in flight is made again, so calls per attach may be above 1 after SIGKILL. A lease ends after 15 s.
			Name: "failover", About: "4 drivers, 25 volumes each, all at once; while the leading one of two replicas is killed, and while it stops",
			Drivers: 4, Nodes: 20, Volumes: 500, Each: 25,
			Rounds: 3, alone: true, replicas: true, turn: turnOfFailover,
			Targets: []target{atMost(CrashLast, 18), atMost(ExitLast, 2), exactly(ExitCalls, 1), exactly(Violations, 0)},
		},
		{
			Name: "rollout", About: "4 drivers, 10 volumes each, attached and detached again and again; while both replicas are replaced",
			Drivers: 4, Nodes: 20, Volumes: 500, Each: 10,
			Rounds: 3, alone: true, replicas: true, booked: true, turn: turnOfRollout,
			Targets: []target{atMost(RolloutGap, 2), exactly(AttachCalls, 1), exactly(DetachCalls, 1), exactly(Violations, 0)},
		},
		scaleCase(),
		idleCase(),
	}
}

func caseNames() (names []string) {
	for _, c := range cases() {
		names = append(names, c.Name)
	}
	return names
}
