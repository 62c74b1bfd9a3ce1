package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Vitals are what a hub costs, and what it has done since its start, at one moment.
type Vitals struct {
	Goroutines  int
	Descriptors int           // open files and connections
	RSS         int64         // resident memory, bytes
	Heap        int64         // live after a garbage collection, bytes
	Stacks      int64         // of goroutines, bytes
	CPU         time.Duration // used
	Attached    int           // successful attaches, of all drivers
	Detached    int           // successful detaches
	Failed      int           // failed tries of either
	Queued      int           // VolumeAttachments that wait
}

// ReadVitals asks a hub that serves HTTP at the URL, with --profiling. The hub collects its
// garbage first, so this is not for where a millisecond matters.
func ReadVitals(ctx context.Context, url string) (Vitals, error) {
	if err := Get(ctx, url+"/debug/pprof/heap?gc=1", func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	}); err != nil {
		return Vitals{}, err
	}
	var v Vitals
	// Not from the metrics: gathering them takes goroutines, more of them with more drivers.
	if err := Get(ctx, url+"/debug/pprof/goroutine?debug=1", func(body io.Reader) error {
		_, err := fmt.Fscanf(bufio.NewReader(body), "goroutine profile: total %d\n", &v.Goroutines)
		return err
	}); err != nil {
		return Vitals{}, err
	}
	families, err := Metrics(ctx, url+"/metrics")
	v.fill(families)
	return v, err
}

func (v *Vitals) fill(families map[string]*dto.MetricFamily) {
	sum := func(name string, labels ...string) float64 { return SumMetric(families[name], labels...) }
	const operations = "attach_hub_operations_total"
	v.Descriptors = int(sum("process_open_fds"))
	v.RSS = int64(sum("process_resident_memory_bytes"))
	v.Heap = int64(sum("go_memstats_heap_alloc_bytes"))
	v.Stacks = int64(sum("go_memstats_stack_inuse_bytes"))
	v.CPU = time.Duration(sum("process_cpu_seconds_total") * float64(time.Second))
	v.Attached = int(sum(operations, "operation", "attach", "result", "success"))
	v.Detached = int(sum(operations, "operation", "detach", "result", "success"))
	v.Failed = int(sum(operations)) - v.Attached - v.Detached
	v.Queued = int(sum("attach_hub_queue_depth"))
}
