package main

import (
	"context"
	"strings"
	"time"
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
	Latency time.Duration // of the drivers
	Workers int           // in drivers.yaml; 0: the default of the hub
	Drift   time.Duration // drift.interval in drivers.yaml; 0: the default of the hub
	Bursts  int           // in each turn
	Rounds  int           // unless Options.Rounds is set
	// SidecarRounds is in how many of the rounds csi-attacher takes part, as it takes minutes; 0: in all.
	SidecarRounds int
	// Sidecars are the ways in which csi-attacher takes part, if there is a binary.
	Sidecars []string
	Targets  []Target

	alone  bool // without the baseline
	fresh  bool // each turn begins with PersistentVolumes without finalizers
	booked bool // the drivers' books keep a list of calls
	shared bool // each volume is attached to all nodes at once
	// replicas means that a turn starts further replicas: csi-attacher has leader election.
	replicas bool
	proxied  bool // the hub reaches the drivers through proxies
	// fair means that API Priority and Fairness is on, and competitors run as ServiceAccounts: the hub as that of deploy/install.yaml.
	fair bool
	// tenantFor is the least time for which the noisy tenant saturates workload-low.
	tenantFor time.Duration
	// prepare (may be nil) runs once before all turns.
	prepare func(context.Context, *stage) error
	// turn measures a running competitor.
	turn func(context.Context, *stage, *attacher) (Figures, error)
}

// Cases returns all cases in the order in which they are measured.
func Cases() []Case {
	both := []string{sidecarName, tunedSidecarName}
	return []Case{
		{
			Name: "10x50", About: "10 drivers, 50 volumes each, all at once; 2,500 PersistentVolumes",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Latency: latency, Workers: 100,
			Bursts: 3, Rounds: 12, Sidecars: both, SidecarRounds: 2, fresh: true, turn: turnOfBursts,
			Targets: append(contract(true),
				AtLeast(AttachRate, 0.95).OfBaseline(), AtLeast(DetachRate, 0.95).OfBaseline(), AtMost(CPU, 1.2).OfBaseline(), AtMost(ResidentEnd, 85e6)),
		},
		{
			Name: "10x500", About: "10 drivers, 500 volumes each, all at once; 20,000 PersistentVolumes",
			Drivers: 10, Nodes: 50, Volumes: 20000, Each: 500, Latency: latency, Workers: 100,
			// With default flags csi-attacher would take five minutes to attach these.
			Bursts: 1, Rounds: 12, Sidecars: both[1:], SidecarRounds: 2, turn: turnOfBursts,
			Targets: append(contract(false),
				AtLeast(AttachRate, 0.95).OfBaseline(), AtLeast(DetachRate, 0.95).OfBaseline(), AtMost(CPU, 1.2).OfBaseline(), AtMost(ResidentAttached, 130e6)),
		},
		{
			Name: "100x20", About: "100 drivers, 20 volumes each, all at once; 5,000 PersistentVolumes",
			Drivers: 100, Nodes: 20, Volumes: 5000, Each: 20, Latency: latency,
			// Without csi-attacher: 100 processes take 7.6 GB, and each of them decodes what all do.
			Bursts: 1, Rounds: 3, turn: turnOfBursts, Targets: contract(false),
		},
		{
			Name: "one-hangs", About: "9 drivers, 50 volumes each, all at once; while a tenth has nothing to do, and while its 50 volumes wait for it",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Latency: latency,
			Bursts: 5, Rounds: 3, Sidecars: both, SidecarRounds: 1, turn: turnOfHanging, Targets: []Target{AtMost(HangingRatio, 1.05)},
		},
		{
			Name: "one-hostile", About: "9 drivers, 50 volumes each, one after the other; while a tenth attaches 50 too, and while it answers with as much as it can",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Latency: latency, Drift: 5 * time.Second,
			// Without csi-attacher: it refuses such answers, as it takes 4 MiB, and then waits up to five minutes for the next try.
			Bursts: 3, Rounds: 2, alone: true, turn: turnOfHostile,
			Targets: []Target{AtMost(HostileRatio, 1.1), AtMost(ResidentPeak, 250e6)},
		},
		{
			Name: "noisy-tenant", About: "10 drivers, 50 volumes each, all at once; while a ServiceAccount saturates workload-low, and while it does not; csi-attacher without leader election",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Latency: latency,
			Bursts: 2, Rounds: 2, Sidecars: both, SidecarRounds: 1, alone: true, fair: true, tenantFor: 20 * time.Second, prepare: prepareTenant, turn: turnOfTenant,
			Targets: []Target{AtMost(TenantRatio, 1.1), Exactly(LeasesLost, 0)},
		},
		podsCase("pods", "with default flags", nil),
		podsCase("pods-tuned", "with "+strings.Join(managerTuned, " "), managerTuned),
		proxiesCase(),
		sharedCase(),
		failoverCase(),
		rolloutCase(),
		{
			Name: "1x1000", About: "one driver, 1,000 volumes at once; 2,500 PersistentVolumes",
			Drivers: 1, Nodes: 50, Volumes: 2500, Each: 1000, Latency: latency, Workers: 100,
			// With default flags csi-attacher would take seven minutes to attach these.
			Bursts: 2, Rounds: 3, Sidecars: both[1:], turn: turnOfBursts, Targets: contract(false),
		},
		{
			Name: "restart", About: "a restart with 5,000 volumes attached; 10 drivers, 20,000 PersistentVolumes",
			Drivers: 10, Nodes: 50, Volumes: 20000, Each: 500, Latency: latency,
			Rounds: 3, Sidecars: both, SidecarRounds: 1, alone: true, prepare: attachForGood, turn: turnOfStart,
			Targets: []Target{AtMost(Ready, 3), Exactly(StartCalls, 0), Exactly(StartWrites, 0), AtMost(ResidentIdle, 130e6)},
		},
		scaleCase(),
		{
			Name: "idle", About: "what drivers without work cost: 500 drivers, 100 and 10",
			Drivers: 500, Nodes: 1, Latency: latency,
			Rounds: 3, alone: true, turn: turnOfIdling,
			Targets: []Target{AtMost(GoroutinesPerDriver, 12), AtMost(ResidentPerDriver, 0.5e6)},
		},
	}
}

// CaseNames returns the names of all cases.
func CaseNames() []string {
	var names []string
	for _, c := range Cases() {
		names = append(names, c.Name)
	}
	return names
}

// contract returns targets for the writes and calls that the hub promises, with or without those of
// first attaches.
func contract(first bool) []Target {
	targets := []Target{Exactly(AttachWrites, 2), Exactly(DetachWrites, 1), Exactly(AttachCalls, 1), Exactly(DetachCalls, 1)}
	if first {
		targets = append(targets, Exactly(FirstWrites, 3))
	}
	return targets
}
