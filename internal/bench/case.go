package bench

import "time"

// latency is how long a publish or unpublish of every driver takes.
const latency = 50 * time.Millisecond

// Case is one thing to measure: how much there is, and how it is measured.
type Case struct {
	Name    string
	About   string // for people
	Drivers int
	Nodes   int
	Volumes int           // PersistentVolumes there are, roughly
	Each    int           // volumes of each driver that are attached at once
	Latency time.Duration // of the drivers
	Workers int           // in drivers.yaml; 0: the default
	Fresh   bool          // the first burst meets volumes without finalizers
	Bursts  int           // in each turn
	Rounds  int           // if nothing else is said
	// Sidecars are the ways in which csi-attacher takes part, if there is a binary.
	Sidecars []string
	Targets  []Target
}

// Cases are all there are, in the order in which they are measured.
func Cases() []Case {
	return []Case{
		{
			Name: "10x50", About: "10 drivers, 50 volumes each, all at once; 2,500 PersistentVolumes",
			Drivers: 10, Nodes: 20, Volumes: 2500, Each: 50, Latency: latency, Workers: 100,
			Fresh: true, Bursts: 3, Rounds: 3, Sidecars: []string{sidecarName, tunedSidecarName},
			Targets: append(contract(true),
				AtLeast(AttachRate, 0.85).OfFloor(), AtLeast(DetachRate, 0.85).OfFloor(), AtMost(ResidentEnd, 70e6)),
		},
	}
}

// CaseNames are those of all cases.
func CaseNames() []string {
	var names []string
	for _, c := range Cases() {
		names = append(names, c.Name)
	}
	return names
}

// contract are the writes and calls that the hub promises.
func contract(fresh bool) []Target {
	targets := []Target{Exactly(AttachWrites, 2), Exactly(DetachWrites, 1), Exactly(AttachCalls, 1), Exactly(DetachCalls, 1)}
	if fresh {
		targets = append(targets, Exactly(FirstWrites, 3))
	}
	return targets
}
