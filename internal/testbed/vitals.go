package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Vitals are what a hub costs, and what it has done since its start, at one moment.
type Vitals struct {
	Goroutines  int
	Descriptors int           // open files and connections
	RSS         int64         // resident memory, bytes
	Heap        int64         // live after a garbage collection, bytes
	Stacks      int64         // of goroutines, bytes
	CPU         time.Duration // used
	Attached    int           // attaches that have succeeded, of all drivers
	Detached    int           // detaches that have
	Failed      int           // tries of either that have not
	Queued      int           // VolumeAttachments that wait
}

// ReadVitals asks a hub that serves HTTP at the URL, with --profiling. The hub collects its
// garbage first, so this is not for where a millisecond matters.
func ReadVitals(ctx context.Context, url string) (Vitals, error) {
	if err := get(ctx, url+"/debug/pprof/heap?gc=1", func(body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	}); err != nil {
		return Vitals{}, err
	}
	var v Vitals
	// Not from the metrics: to gather them takes goroutines, more of them with more drivers.
	if err := get(ctx, url+"/debug/pprof/goroutine?debug=1", func(body io.Reader) error {
		_, err := fmt.Fscanf(bufio.NewReader(body), "goroutine profile: total %d\n", &v.Goroutines)
		return err
	}); err != nil {
		return Vitals{}, err
	}
	err := get(ctx, url+"/metrics", func(body io.Reader) error {
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(body)
		if err == nil {
			v.fill(families)
		}
		return err
	})
	return v, err
}

func (v *Vitals) fill(families map[string]*dto.MetricFamily) {
	sum := func(name string, labels ...string) float64 { return sumSamples(families[name], labels) }
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

// sumSamples adds up the samples of a metric that have the labels, given as names and
// values in turn.
func sumSamples(family *dto.MetricFamily, labels []string) (sum float64) {
	for _, m := range family.GetMetric() {
		has := map[string]string{}
		for _, pair := range m.GetLabel() {
			has[pair.GetName()] = pair.GetValue()
		}
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sum
}

// get hands the body of an answer to read.
func get(ctx context.Context, url string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("get %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err // it names the URL
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, resp.Status)
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	return nil
}
