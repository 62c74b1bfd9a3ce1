package status

import (
	"cmp"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Metrics has the counters of each driver.
type Metrics struct {
	registry *prometheus.Registry

	mu      sync.Mutex
	drivers map[string]*DriverMetrics // by label value; guarded by mu
}

// NewMetrics returns Metrics without a driver.
func NewMetrics() *Metrics {
	return &Metrics{registry: prometheus.NewRegistry(), drivers: map[string]*DriverMetrics{}}
}

// longestLabel bounds a label value, in bytes. Names in Kubernetes are shorter.
const longestLabel = 253

// label returns a foreign text as a label value. A value that is not valid UTF-8 would fail the whole
// scrape.
func label(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), longestLabel)], "?")
}

// Driver returns the metrics of a driver. Its series exist, at zero, from the first
// call until Forget.
func (m *Metrics) Driver(name string) *DriverMetrics {
	name = label(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		return d
	}
	d := newDriverMetrics(name)
	m.registry.MustRegister(d.series) // names are unique in m.drivers
	m.drivers[name] = d
	return d
}

// Forget ends the series of a driver. What is still counted into its DriverMetrics goes
// nowhere, and another call of Driver begins at zero.
func (m *Metrics) Forget(name string) {
	name = label(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		m.registry.Unregister(d.series)
		delete(m.drivers, name)
	}
}

// spark returns the recent operations of a driver, nil if there were none.
func (m *Metrics) spark(driver string, now time.Time) *spark {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[label(driver)]; d != nil {
		return d.recent.spark(now)
	}
	return nil
}

var (
	// callBuckets are those of csi-attacher, so that its dashboards work.
	callBuckets = []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
	// operationBuckets range from an idle driver to an operation with several tries.
	operationBuckets = []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900}
)

// DriverMetrics has the counters of one driver. Its methods may be called from any goroutine and do
// not block.
type DriverMetrics struct {
	series *prometheus.Registry // all of the vectors
	recent recent

	calls, took                                   *prometheus.HistogramVec
	operations, retries, drift, observed, foreign *prometheus.CounterVec
}

// newDriverMetrics returns the metrics of a driver. name is a label value. The series that are known beforehand exist at
// zero, so that the first event is an increase. Histograms of failures, which are many series, begin with the first failure:
// attach_hub_operations_total counts failures from the start.
func newDriverMetrics(name string) *DriverMetrics {
	series, driver := prometheus.NewRegistry(), prometheus.Labels{"driver": name}
	register := promauto.With(series)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Name: "attach_hub_" + name, Help: help, ConstLabels: driver}, labels)
	}
	d := &DriverMetrics{
		series: series,
		calls: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "csi_sidecar_operations_seconds", Buckets: callBuckets,
			Help:        "Container Storage Interface operation duration with gRPC error code status total",
			ConstLabels: prometheus.Labels{"driver_name": name},
		}, []string{"method_name", "grpc_status_code"}),
		took: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "attach_hub_operation_seconds", Buckets: operationBuckets, ConstLabels: driver,
			Help: "Time from the event that required an operation to its written result.",
		}, []string{"operation", "result"}),
		operations: counter("operations_total", "Attaches and detaches that ended, each try counted.", "operation", "result"),
		retries:    counter("retries_total", "Tries of an operation after a failed one.", "operation"),
		drift:      counter("drift_total", "Confirmed differences between VolumeAttachments and the driver's list of volumes, and what followed.", "kind", "action"),
		observed:   counter("observed_total", "Decisions in mode observe, compared with what became of the VolumeAttachment.", "agreement"),
		foreign:    counter("foreign_writer_total", "Writes of another attacher to VolumeAttachments of a driver that is active here."),
	}
	for _, method := range []string{csi.Controller_ControllerPublishVolume_FullMethodName, csi.Controller_ControllerUnpublishVolume_FullMethodName} {
		d.calls.WithLabelValues(method, codes.OK.String())
	}
	for _, op := range []Operation{Attach, Detach} {
		d.took.WithLabelValues(string(op), string(Success))
		d.retries.WithLabelValues(string(op))
		for _, result := range Results {
			d.operations.WithLabelValues(string(op), string(result))
		}
	}
	for _, a := range []Agreement{Agreed, WouldHaveFailed, Differs} {
		d.observed.WithLabelValues(string(a))
	}
	d.foreign.WithLabelValues()
	return d
}

// Call counts an RPC to the driver. The method is its full gRPC path.
func (d *DriverMetrics) Call(method string, code codes.Code, took time.Duration) {
	if code > codes.Unauthenticated {
		code = codes.Unknown // a driver can send any number
	}
	d.calls.WithLabelValues(label(method), code.String()).Observe(took.Seconds())
}

// Operation counts a try of an attach or a detach that has ended. took is the time since the event
// that made the operation due.
func (d *DriverMetrics) Operation(op Operation, result Result, took time.Duration) {
	d.operations.WithLabelValues(string(op), string(result)).Inc()
	d.took.WithLabelValues(string(op), string(result)).Observe(took.Seconds())
	d.recent.add(time.Now(), result, took)
}

// Retry counts a try of an attach or a detach that follows a failed one.
func (d *DriverMetrics) Retry(op Operation) { d.retries.WithLabelValues(string(op)).Inc() }

// Drift counts a confirmed difference, of a kind, and what is done about it.
func (d *DriverMetrics) Drift(kind, action string) {
	d.drift.WithLabelValues(label(kind), label(action)).Inc()
}

// Observed counts a comparison in mode observe.
func (d *DriverMetrics) Observed(a Agreement) { d.observed.WithLabelValues(string(a)).Inc() }

// ForeignWriter counts a write of another attacher.
func (d *DriverMetrics) ForeignWriter() { d.foreign.WithLabelValues().Inc() }

// Result is how an operation ended. It has few values, so that it can be a label.
type Result string

const (
	Success     Result = "success"
	Unavailable Result = "unavailable" // the driver cannot be reached or is busy: Unavailable, Aborted, ResourceExhausted
	Timeout     Result = "timeout"     // DeadlineExceeded, Canceled
	Refused     Result = "refused"     // the driver rejects the call: InvalidArgument, NotFound, ...
	Kubernetes  Result = "kubernetes"  // the API server rejected a read or a write
	Failed      Result = "error"       // all others: Internal, Unknown, missing objects
)

// Results are all results.
var Results = []Result{Success, Unavailable, Timeout, Refused, Kubernetes, Failed}

// ResultOf returns the Result of an operation that returned err.
func ResultOf(err error) Result {
	if fromAPI := apierrors.APIStatus(nil); errors.As(err, &fromAPI) {
		return Kubernetes
	}
	s, answered := status.FromError(err)
	if !answered {
		s = status.FromContextError(err) // Unknown if it is none
	}
	return cmp.Or(resultOf[s.Code()], Failed)
}

var resultOf = map[codes.Code]Result{
	codes.OK:          Success,
	codes.Unavailable: Unavailable, codes.Aborted: Unavailable, codes.ResourceExhausted: Unavailable,
	codes.DeadlineExceeded: Timeout, codes.Canceled: Timeout,
	codes.InvalidArgument: Refused, codes.NotFound: Refused, codes.AlreadyExists: Refused, codes.PermissionDenied: Refused,
	codes.Unauthenticated: Refused, codes.FailedPrecondition: Refused, codes.OutOfRange: Refused, codes.Unimplemented: Refused,
}
