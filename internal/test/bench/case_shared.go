package main

// sharedCase attaches volumes with a MULTI_NODE access mode to many nodes at once. Sidecars take part once: with default flags
// they attach 24 volumes per second.
func sharedCase() Case {
	return Case{
		Name: "rwx", About: "4 drivers, one ReadWriteMany volume each, attached to 50 nodes at once",
		Drivers: 4, Nodes: 50, Volumes: 500, Each: 1, Latency: latency,
		Bursts: 3, Rounds: 4, Sidecars: []string{sidecarName, tunedSidecarName}, SidecarRounds: 1, shared: true, turn: turnOfBursts,
		Targets: contract(false),
	}
}
