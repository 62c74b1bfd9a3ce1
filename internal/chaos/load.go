package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// load is what pods ask for while nothing is wrong, and with which settings hubs and drivers
// answer it.
type load struct {
	volumes  int             // of each driver
	linger   time.Duration   // how long a pod stays where it is, on average
	latency  fakecsi.Latency // of the drivers' calls
	defaults string          // in drivers.yaml
	settings settings        // of each driver
	hubFlags []string
	// verbosity is that of the hubs' logs.
	verbosity int
	timeline  bool // what happens is written down: memory grows with it
	early     int  // moves of a pod to one that deletes a VolumeAttachment at once; 0: none does
}

// faultyLoad is that of a run with faults. Its leases are ones that a run can wait for. Calls take 2 s at
// most, which fits.
func faultyLoad() load {
	return load{
		volumes: len(sorts), linger: 400 * time.Millisecond, timeline: true, verbosity: 2,
		latency:  fakecsi.Latency{Base: 10 * time.Millisecond, Jitter: 80 * time.Millisecond},
		defaults: "{retry: {initial: 100ms, max: 1s}, drift: {interval: 1s, timeout: 2s}, probe: {interval: 1s, timeout: 2s}}",
		// Fewer workers than a driver has pods, so that work waits at times.
		settings: settings{workers: 4, timeout: "2s", mode: "active"},
		hubFlags: []string{"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"},
	}
}

// sorts are the volumes of each driver; more volumes begin again with the first sort.
var sorts = []volume{{}, {}, {}, {block: true}, {secret: "yes"}, {inline: true}, {shared: true}}

// addVolumes makes the model of a storage's volumes, of every sort, and of their pods.
func (w *world) addVolumes(storage int, nodes []string) {
	for i := range w.load.volumes {
		v := sorts[i%len(sorts)]
		v.world, v.storage, v.name = w, w.storages[storage], fmt.Sprintf("d%d-v%d", storage, i)
		if v.secret != "" {
			v.secret = secretName(storage)
		}
		w.all = append(w.all, &v)
		w.addPods(&v, nodes)
	}
}

// addPods gives a volume its pod; one that many nodes may have gets one on each node, so that
// there are calls for it on many nodes at once.
func (w *world) addPods(v *volume, nodes []string) {
	parts := [][]string{nodes}
	if v.shared {
		parts = slices.Collect(slices.Chunk(nodes, 1))
	}
	for i, part := range parts {
		p := &pod{
			world: w, name: fmt.Sprintf("%s-p%d", v.name, i), volume: v, nodes: part,
			random: rand.New(rand.NewPCG(w.options.Seed, uint64(len(w.pods)))), orders: make(chan Kind, 1), changed: make(chan struct{}, 1),
		}
		w.pods, w.podByName[p.name] = append(w.pods, p), p
	}
}
