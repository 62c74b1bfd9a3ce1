package status

import (
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
)

var (
	// callBuckets are those of csi-attacher, so that its dashboards work.
	callBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	// operationBuckets range from an idle driver to an operation with several tries.
	operationBuckets = []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900}
)

// DriverMetrics has the counters of one driver. Its methods may be called from any goroutine and do
// not block. A nil DriverMetrics counts nothing.
type DriverMetrics struct {
	series     *prometheus.Registry // all of the following
	calls      *prometheus.HistogramVec
	took       *prometheus.HistogramVec
	operations *prometheus.CounterVec
	retries    *prometheus.CounterVec
	drift      *prometheus.CounterVec
	observed   *prometheus.CounterVec
	foreign    prometheus.Counter
	recent     recent

	// What every operation needs, looked up once.
	succeeded map[Operation]success
	answered  map[string]prometheus.Observer // calls, by full method of those that begin creates
}

// success are the series of the successes of one operation.
type success struct {
	count prometheus.Counter
	took  prometheus.Observer
}

// newDriverMetrics returns the metrics of a driver. name is a label value.
func newDriverMetrics(name string) *DriverMetrics {
	series, driver := prometheus.NewRegistry(), prometheus.Labels{"driver": name}
	register := promauto.With(series)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Name: "attach_hub_" + name, Help: help, ConstLabels: driver}, labels)
	}
	d := &DriverMetrics{
		series: series, succeeded: map[Operation]success{}, answered: map[string]prometheus.Observer{},
		calls: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "csi_sidecar_operations_seconds", Buckets: callBuckets,
			Help:        "Container Storage Interface operation duration with gRPC error code status total",
			ConstLabels: prometheus.Labels{"driver_name": name},
		}, []string{"method_name", "grpc_status_code"}),
		took: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "attach_hub_operation_seconds", Buckets: operationBuckets, ConstLabels: driver,
			Help: "Time from the event that asked for an operation to its written result.",
		}, []string{"operation", "result"}),
		operations: counter("operations_total", "Attaches and detaches that ended, each try counted.", "operation", "result"),
		retries:    counter("retries_total", "Tries of an operation after a failed one.", "operation"),
		drift:      counter("drift_total", "Confirmed differences between VolumeAttachments and the driver's list of volumes, and what followed.", "kind", "action"),
		observed:   counter("observed_total", "Decisions in mode observe, compared with what became of the VolumeAttachment.", "agreement"),
		foreign:    counter("foreign_writer_total", "Writes of another attacher to VolumeAttachments of a driver that is active here.").WithLabelValues(),
	}
	d.begin()
	return d
}

// begin creates the series that are known beforehand, at zero, so that the first event is an
// increase. Histograms of failures, which are many series, begin with the first failure:
// attach_hub_operations_total counts failures from the start.
func (d *DriverMetrics) begin() {
	for _, method := range []string{csi.Controller_ControllerPublishVolume_FullMethodName, csi.Controller_ControllerUnpublishVolume_FullMethodName} {
		d.answered[method] = d.calls.WithLabelValues(method, codes.OK.String())
	}
	for _, op := range []Operation{Attach, Detach} {
		d.succeeded[op] = success{d.operations.WithLabelValues(string(op), string(Success)), d.took.WithLabelValues(string(op), string(Success))}
		d.retries.WithLabelValues(string(op))
		for _, result := range Results {
			d.operations.WithLabelValues(string(op), string(result))
		}
	}
	for _, a := range []Agreement{Agreed, WouldHaveFailed, Differs} {
		d.observed.WithLabelValues(string(a))
	}
}

// Call counts an RPC to the driver. The method is its full gRPC path.
func (d *DriverMetrics) Call(method string, code codes.Code, took time.Duration) {
	if d == nil {
		return
	}
	if series, ok := d.answered[method]; ok && code == codes.OK {
		series.Observe(took.Seconds())
		return
	}
	if code > codes.Unauthenticated {
		code = codes.Unknown // a driver can send any number
	}
	d.calls.WithLabelValues(label(method), code.String()).Observe(took.Seconds())
}

// Operation counts a try of an attach or a detach that has ended. took is the time since the event
// that made the operation due.
func (d *DriverMetrics) Operation(op Operation, result Result, took time.Duration) {
	if d == nil {
		return
	}
	if s, ok := d.succeeded[op]; ok && result == Success {
		s.count.Inc()
		s.took.Observe(took.Seconds())
	} else {
		d.operations.WithLabelValues(string(op), string(result)).Inc()
		d.took.WithLabelValues(string(op), string(result)).Observe(took.Seconds())
	}
	d.recent.add(time.Now(), result, took)
}

// Retry counts a try of an attach or a detach that follows a failed one.
func (d *DriverMetrics) Retry(op Operation) {
	if d != nil {
		d.retries.WithLabelValues(string(op)).Inc()
	}
}

// Drift counts a confirmed difference, of a kind, and what follows.
func (d *DriverMetrics) Drift(kind, action string) {
	if d != nil {
		d.drift.WithLabelValues(label(kind), label(action)).Inc()
	}
}

// Observed counts a comparison in mode observe.
func (d *DriverMetrics) Observed(a Agreement) {
	if d != nil {
		d.observed.WithLabelValues(string(a)).Inc()
	}
}

// ForeignWriter counts a write of another attacher.
func (d *DriverMetrics) ForeignWriter() {
	if d != nil {
		d.foreign.Inc()
	}
}
