package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// handovers returns how often the real csi-attacher and the hub take a driver over from each other: six times, or
// as often as the environment variable HANDOVERS says (make handover), and the time limit.
func handovers(t *testing.T) (n int, limit time.Duration) {
	t.Helper()
	n = 6
	if text := os.Getenv("HANDOVERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 2 || n%2 == 1 {
			t.Fatalf("HANDOVERS=%s: want an even number, so that the hub leads at the end", text)
		}
	}
	return n, testTimeout + time.Duration(n)*20*time.Second
}

// One of them is stopped each time, by SIGTERM or, every third time, by SIGKILL. Meanwhile Pods move volumes among
// nodes, and VolumeAttachments and PersistentVolumes are made again under the same names. Violations by csi-attacher
// are only counted.
func TestTheHubAndTheRealCSIAttacherTakeADriverOverFromEachOther(t *testing.T) {
	const volumes = 12
	n, limit := handovers(t)
	a := newAlternation(t, "alternation", limit)
	nodes := a.nodes(4)
	for _, node := range nodes {
		a.create(testbed.Node{Name: node}) // it says that no volume is in use there
	}
	load := startChurn(a.ctx, churnOptions{Cluster: a.cluster, Watcher: a.watcher, Driver: a.driver,
		Volumes: volumes, Nodes: nodes, Prefix: a.prefix + "-v", Seed: uint64(n), Renew: true})
	a.cycle(load, volumes)
	began := time.Now()
	for i := range n {
		kill := i%3 == 2
		if i%2 == 1 {
			a.toHub(kill)
			a.cycle(load, volumes)
			continue
		}
		a.toAttacher(kill)
		if i%4 == 0 {
			a.lose(nodes[0])
		}
		term, cancel := context.WithTimeout(a.ctx, attacherTerm)
		if err := load.WaitCycles(term, volumes); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	took := time.Since(began)
	a.checkEnd(load, volumes)
	a.checkVolumesGo(volumes)

	books := a.backend.Books()
	faults, unknowable := a.callers.hubFaults(books, a.killed)
	for _, fault := range faults {
		t.Error("violation by the hub: ", fault)
	}
	all := a.callers.workOf(books)
	hub, attacher := all[""], all[csiAttacher]
	if hub.takenOver == 0 || attacher.takenOver == 0 {
		t.Error("one of them has never detached what the other one had attached")
	}
	if a.healed < a.lost {
		t.Errorf("%d volumes were left attached and detached by the hub, want %d at least", a.healed, a.lost)
	}
	t.Logf("%d handovers in %v (hubs killed %d times, csi-attacher ended by itself %d times): %d cycles, %d VolumeAttachments attached",
		n, took.Round(time.Second), len(a.killed), a.ended, load.Cycles(), len(a.attached))
	t.Logf("hub: %v (%d of them met what another process had left)", hub, unknowable)
	t.Logf("csi-attacher: %v", attacher)
	t.Logf("attached without a VolumeAttachment: %d left by csi-attacher or by a hub that was killed (%d of them because their finalizer was removed), "+
		"all detached by the hub within %v of taking over; %d left by a hub that was stopped", a.healed, a.lost, a.longest.Round(time.Millisecond), a.leftByHub)
}
