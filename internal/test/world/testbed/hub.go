package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// HubOptions say how to run csi-attach-hub.
type HubOptions struct {
	Binary        string        // of cmd/csi-attach-hub
	Kubeconfig    string        // path
	Config        string        // path of drivers.yaml; empty when Args say what to serve
	ShutdownGrace time.Duration // 0: the hub's own default
	Verbosity     int           // -v
	HTTPEndpoint  string        // with Config; empty: none, so that many hubs get on with each other
	Args          []string      // further flags
	Env           []string      // added to this process's environment
	LogPath       string        // gets its output, appended
	Name          string        // for errors; empty: "hub"
}

// HubGOGC is what the chart sets the environment variable GOGC of a hub to.
const HubGOGC = "50"

// StartHub starts a hub and does not wait until it is ready: the hub itself
// waits for whatever is not there yet. The caller must Stop or Kill it.
func StartHub(ctx context.Context, o HubOptions) (*Process, error) {
	if o.Binary == "" || o.Kubeconfig == "" || o.LogPath == "" {
		return nil, errors.New("start hub: Binary, Kubeconfig and LogPath must be set")
	}
	args := []string{"--kubeconfig", o.Kubeconfig, "-v", strconv.Itoa(o.Verbosity)}
	if o.Config != "" {
		args = append(args, "--config", o.Config, "--http-endpoint", o.HTTPEndpoint)
	}
	if o.ShutdownGrace > 0 {
		args = append(args, "--shutdown-grace", o.ShutdownGrace.String())
	}
	if o.Name == "" {
		o.Name = "hub"
	}
	return StartProcess(ctx, ProcessOptions{Name: o.Name, Path: o.Binary, Args: append(args, o.Args...), Env: append([]string{"GOGC=" + HubGOGC}, o.Env...), LogPath: o.LogPath})
}

// FreeAddress returns an address on this machine that nobody listens on, for a process
// that is about to start.
func FreeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

const (
	// readyEvery is how often a hub is asked whether it is ready. An answer takes the hub some milliseconds of CPU time, so
	// a hub that takes long is asked less often: one readyShare-th of the time so far is between two questions.
	readyEvery = 20 * time.Millisecond
	readyShare = 50
	// readyTimeout is how long it may take: the caches of 100,000 PersistentVolumes are filled.
	readyTimeout = 2 * time.Minute
)

// Hub is a process of csi-attach-hub that serves HTTP.
type Hub struct {
	*Process
	URL string // without a path
}

// WaitReady blocks until the hub is connected to so many drivers and holds their leases. An
// error says how far it has come.
func (h *Hub) WaitReady(ctx context.Context, drivers int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready %v after its start", readyTimeout))
	defer cancel()
	began := time.Now()
	return WhileRunning(ctx, []*Process{h.Process}, func(ctx context.Context) error {
		for want := float64(drivers); ; {
			families, err := Metrics(ctx, h.URL+"/metrics")
			up, leads := SumMetric(families["attach_hub_driver_up"]), SumMetric(families["attach_hub_driver_leader"])
			if err == nil && up == want && leads == want {
				return nil
			}
			select {
			case <-time.After(max(readyEvery, time.Since(began)/readyShare)):
			case <-ctx.Done():
				return fmt.Errorf("wait until the hub is ready: it has %.0f of %d drivers, and the leases of %.0f: %w", up, drivers, leads, context.Cause(ctx))
			}
		}
	})
}

// Vitals asks a hub that was started with --profiling.
func (h *Hub) Vitals(ctx context.Context) (Vitals, error) { return ReadVitals(ctx, h.URL) }

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
