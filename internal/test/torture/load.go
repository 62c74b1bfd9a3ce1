package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// load says what pods ask for, and how hubs and drivers are set up while nothing is wrong.
type load struct {
	volumes  int             // of each driver
	linger   time.Duration   // how long a pod stays where it is, on average
	latency  fakecsi.Latency // of the drivers' calls
	defaults string          // in drivers.yaml
	settings settings        // of each driver
	hubFlags []string
	// verbosity is that of the hubs' logs.
	verbosity int
	history   bool // keep a history: memory grows with the run
	early     int  // one of so many moves deletes its VolumeAttachment at once; 0: none
}

// faultyLoad is the load of a run with faults. Its leases are short, so that a run can wait for their
// end. Calls take 2 s at most, which fits into a lease.
func faultyLoad() load {
	return load{
		volumes: len(sorts), linger: 400 * time.Millisecond, history: true, verbosity: 2,
		latency:  fakecsi.Latency{Base: 10 * time.Millisecond, Jitter: 80 * time.Millisecond},
		defaults: "{retry: {initial: 100ms, max: 1s}, drift: {interval: 1s}, probe: {interval: 1s}}",
		// A driver has fewer workers than pods, so that work waits at times.
		settings: settings{workers: 4, timeout: "2s", mode: "active"},
		hubFlags: []string{"--leader-election-lease-duration=3s", "--leader-election-renew-deadline=2s", "--leader-election-retry-period=500ms"},
	}
}

// sorts are the sorts of volumes of each driver. A driver with more volumes repeats them.
var sorts = []volume{{}, {}, {}, {block: true}, {secret: "yes"}, {inline: true}, {shared: true}}

// addVolumes adds a storage's volumes, of every sort, and their pods to the model.
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

// addPods adds the pod of a volume. A shared volume gets one pod on each node, so that there are
// calls for it on many nodes at once.
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
