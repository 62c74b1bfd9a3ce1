package status

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const publish = csi.Controller_ControllerPublishVolume_FullMethodName

// scrape reads the metrics as Prometheus does.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	code, _, body := get(t, url+"/metrics")
	if code != 200 {
		t.Fatalf("got status %d: %s", code, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// ours leaves only the metrics of this package.
func ours(families map[string]*dto.MetricFamily) map[string]*dto.MetricFamily {
	maps.DeleteFunc(families, func(name string, _ *dto.MetricFamily) bool {
		return !strings.HasPrefix(name, "attach_hub_") && !strings.HasPrefix(name, "csi_sidecar_")
	})
	return families
}

// value returns the value of the one series of a metric that has these labels at least:
// of a histogram, how much was counted. It returns NaN if there is none.
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	result := math.NaN()
	for _, m := range families[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		match := true
		for i := 0; i < len(labels); i += 2 {
			match = match && has[labels[i]] == labels[i+1]
		}
		if !match {
			continue
		}
		if !math.IsNaN(result) {
			t.Fatalf("%s%v: more than one series", name, labels)
		}
		result = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return result
}

// series counts the samples that a scrape costs.
func series(families map[string]*dto.MetricFamily) int {
	n := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n++
			if h := m.GetHistogram(); h != nil {
				n += len(h.GetBucket()) + 1
			}
		}
	}
	return n
}

func TestCallsHaveTheBucketsOfCSIAttacherAndMetricsOfTheProcessAreThere(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com").Call(publish, codes.OK, 200*time.Millisecond)
	families := scrape(t, startServer(t, h))
	if families["go_goroutines"] == nil || families["process_start_time_seconds"] == nil {
		t.Error("there are none of Go and of the process")
	}
	for _, m := range families["csi_sidecar_operations_seconds"].GetMetric() {
		var got []float64
		for _, b := range m.GetHistogram().GetBucket() {
			got = append(got, b.GetUpperBound())
		}
		want := []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600, math.Inf(1)}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := value(t, families, "csi_sidecar_operations_seconds", "driver_name", "a.example.com",
		"method_name", "/csi.v1.Controller/ControllerPublishVolume", "grpc_status_code", "OK"); got != 1 {
		t.Errorf("counted %v calls, want 1", got)
	}
}

func TestSeriesOfADriverBeginAtZeroAndEndWithIt(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	h.engage("a.example.com")
	d := h.engage("b.example.com")
	families := ours(scrape(t, url))
	for name, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); n != 0 {
				t.Errorf("%s begins at %v", name, n)
			}
		}
	}
	for _, op := range []Operation{Attach, Detach} {
		for _, result := range Results {
			if got := value(t, families, "attach_hub_operations_total", "driver", "b.example.com", "operation", string(op), "result", string(result)); got != 0 {
				t.Errorf("%s with %s: got %v, want a series at 0", op, result, got)
			}
		}
	}
	d.Operation(Attach, Success, time.Second)
	d.Call(publish, codes.OK, time.Second)
	d.Drift("kind", "action")
	h.retire("b.example.com")
	d.Operation(Attach, Failed, time.Second) // a call that ended late
	d.Call("/csi.v1.Identity/Probe", codes.Internal, time.Second)
	gone := ours(scrape(t, url))
	for name, f := range gone {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "b.example.com" {
					t.Errorf("%s has a series left: %v", name, m)
				}
			}
		}
	}
	if value(t, gone, "attach_hub_driver_up", "driver", "a.example.com") != 1 {
		t.Error("the series of the other driver are gone too")
	}
	h.engage("b.example.com")
	if got := value(t, scrape(t, url), "attach_hub_operations_total", "driver", "b.example.com", "operation", "attach", "result", "success"); got != 0 {
		t.Errorf("engaged anew, it begins at %v", got)
	}
}

func TestSeriesDoNotGrowWithVolumesAndNodes(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	h.engage("a.example.com")
	h.load("a.example.com", 10, Attached)
	few := series(ours(scrape(t, url)))
	h.load("a.example.com", 5000, Failing)
	h.change(func() {
		h.overview.Config.Errors = []string{"one", "two"}
		h.overview.Replicas = make([]string, 50)
	})
	h.setDriver("a.example.com", func(d *Driver) {
		d.Failures = []Failure{{Text: "one"}, {Text: "two"}}
		d.Observed = &Observed{Disagreements: make([]Disagreement, 500)}
	})
	if many := series(ours(scrape(t, url))); many != few {
		t.Errorf("%d series with 10 volumes, %d with 5000", few, many)
	}
}

func TestMetricsMirrorTheStateOfTheMoment(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	h.engage("a.example.com")
	h.setDriver("a.example.com", func(d *Driver) {
		d.Up, d.Lease.Mine, d.Mode = false, false, "observe"
		d.Lanes = []Lane{
			{Operation: Attach, Queued: 1, Delayed: 2, Running: 3, Workers: 10, Stuck: 5},
			{Operation: Detach, Queued: 6, Running: 7, Workers: 11, Stuck: 9},
			{Operation: Drift, Queued: 10, Delayed: 20, Running: 30, Stuck: 50},
			{Operation: Finalizer, Queued: 1000, Running: 1000},
		}
	})
	h.change(func() {
		h.overview.Config.Files = []ConfigFile{{Path: "folder/a.yaml"}, {Path: "folder/b.yaml", Rejected: "it is"}}
		h.overview.Config.Conflicts = []Conflict{{Driver: "a.example.com"}, {Driver: "a.example.com"}, {Driver: "z.example.com"}}
	})
	families := scrape(t, url)
	for _, tc := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"driver_up", []string{"driver", "a.example.com"}, 0},
		{"driver_leader", []string{"driver", "a.example.com"}, 0},
		{"driver_info", []string{"driver", "a.example.com", "mode", "observe", "endpoint", "unix:///csi/a.example.com/csi.sock", "version", "4.5.6", "source", "drivers.yaml:3"}, 1},
		{"queue_depth", []string{"operation", "attach"}, 33},
		{"queue_depth", []string{"operation", "detach"}, 6},
		{"workers_busy", []string{"operation", "attach"}, 33},
		{"workers_busy", []string{"operation", "detach"}, 7},
		{"workers", []string{"operation", "attach"}, 10},
		{"workers", []string{"operation", "detach"}, 11},
		{"stuck", []string{"operation", "attach"}, 55},
		{"stuck", []string{"operation", "detach"}, 9},
		{"config_last_reload_successful", []string{"file", "folder/a.yaml"}, 1},
		{"config_last_reload_successful", []string{"file", "folder/b.yaml"}, 0},
		{"config_last_reload_success_timestamp_seconds", nil, 1700000000.5},
		{"registry_conflicts", []string{"driver", "a.example.com"}, 2},
		{"registry_conflicts", []string{"driver", "z.example.com"}, 1},
	} {
		if got := value(t, families, "attach_hub_"+tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%v is %v, want %v", tc.name, tc.labels, got, tc.want)
		}
	}
	h.setDriver("a.example.com", func(d *Driver) { d.Up, d.Lease.Mine = true, true })
	h.change(func() { h.overview.Config.Conflicts = nil })
	families = scrape(t, url)
	if value(t, families, "attach_hub_driver_up") != 1 || value(t, families, "attach_hub_driver_leader") != 1 {
		t.Error("the driver is up and served, and the metrics do not say so")
	}
	if got := value(t, families, "attach_hub_registry_conflicts", "driver", "z.example.com"); !math.IsNaN(got) {
		t.Errorf("a conflict that is gone has a series still, with %v", got)
	}
}

func TestTheConfigHashDiffersWithTheConfiguration(t *testing.T) {
	h := newFakeHub()
	u := startServer(t, h)
	number := func(hash string) float64 {
		h.change(func() { h.overview.Config.Hash = hash })
		return value(t, scrape(t, u), "attach_hub_config_hash")
	}
	if number("") != 0 {
		t.Error("no configuration has a hash")
	}
	long := strings.Repeat("0f", 32)
	if number(long) != number(long) || number("a"+long) == number("b"+long) {
		t.Error("equal ones have different numbers, or different ones equal numbers")
	}
	if n := number(strings.Repeat("f", 64)); n != math.Trunc(n) || n >= 1<<53 {
		t.Errorf("%v does not fit into a sample", n)
	}
}

func TestSeriesOfUnknownDriversAreBounded(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	h.change(func() {
		h.overview.Unserved = map[string]int{"big.example.com": 1000}
		for i := range 499 {
			h.overview.Unserved[fmt.Sprintf("%03d.example.com", i)] = 2
		}
		for i := range 500 {
			h.overview.Config.Conflicts = append(h.overview.Config.Conflicts, Conflict{Driver: fmt.Sprintf("%03d.example.com", i)})
		}
	})
	families := scrape(t, url)
	for _, name := range []string{"attach_hub_unserved_volumeattachments", "attach_hub_unserved_oldest_seconds", "attach_hub_registry_conflicts"} {
		if got := len(families[name].GetMetric()); got != mostUnknown+1 {
			t.Errorf("%d drivers have a series of %s", got, name)
		}
	}
	for attacher, want := range map[string]float64{"big.example.com": 1000, "other": 2 * (500 - mostUnknown)} {
		if got := value(t, families, "attach_hub_unserved_volumeattachments", "attacher", attacher); got != want {
			t.Errorf("%s: %v, want %v", attacher, got, want)
		}
	}
}

func TestAgesAreZeroWhereNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFakeHub()
		now := time.Now()
		h.engage("a.example.com")
		h.setDriver("a.example.com", func(d *Driver) {
			d.Lanes = []Lane{{Operation: Attach, OldestSince: now.Add(-4500 * time.Millisecond)}, {Operation: Drift, OldestSince: now.Add(-40 * time.Second)},
				{Operation: Detach}, {Operation: Finalizer, OldestSince: now.Add(-time.Hour)}}
		})
		h.change(func() {
			h.overview.Unserved = map[string]int{"served.example.com": 5000, "waits.example.com": 4000}
			for i := range mostUnknown + 10 {
				h.overview.Unserved[fmt.Sprintf("%03d.example.com", i)] = 1000 - i
			}
			h.overview.UnservedSince = map[string]time.Time{"waits.example.com": now.Add(-time.Hour),
				"105.example.com": now.Add(-2 * time.Minute), "106.example.com": now.Add(-3 * time.Minute), "future.example.com": now.Add(time.Hour)}
		})
		all, err := gauges(h).Gather()
		if err != nil {
			t.Fatal(err)
		}
		families := map[string]*dto.MetricFamily{}
		for _, f := range all {
			families[f.GetName()] = f
		}
		for operation, want := range map[string]float64{"attach": 40, "detach": 0} {
			if got := value(t, families, "attach_hub_queue_oldest_seconds", "operation", operation); got != want {
				t.Errorf("%s: got %v seconds, want %v", operation, got, want)
			}
		}
		for attacher, want := range map[string]float64{"served.example.com": 0, "waits.example.com": 3600, "other": 180} {
			if got := value(t, families, "attach_hub_unserved_oldest_seconds", "attacher", attacher); got != want {
				t.Errorf("%s: got %v seconds, want %v", attacher, got, want)
			}
		}
	})
}

func TestHostileTextCostsNoScrape(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	hostile := "a\xff\"\n{}\\" + strings.Repeat("long", 1000)
	d := h.engage(hostile)
	d.Call(hostile, codes.Code(77), time.Second)
	d.Call(hostile, codes.Code(78), time.Second)
	h.engage("a\xfe") // the same as the next one, once it is made valid
	h.engage("a\xfd")
	h.setDriver(hostile, func(d *Driver) { d.Version = hostile })
	h.change(func() { h.overview.Unserved = map[string]int{"b\xff": 1, "b\xfe": 1} })
	families := scrape(t, url)
	if got := value(t, families, "csi_sidecar_operations_seconds", "grpc_status_code", "Unknown"); got != 2 {
		t.Errorf("%v calls with a code that there is not, want 2", got)
	}
	if got := value(t, families, "attach_hub_unserved_volumeattachments", "attacher", "b?"); got != 2 {
		t.Errorf("got %v unserved ones, want both", got)
	}
	if got := len(families["attach_hub_driver_up"].GetMetric()); got != 2 {
		t.Errorf("got %d drivers, want 2", got)
	}
	for _, m := range families["attach_hub_driver_info"].GetMetric() {
		for _, l := range m.GetLabel() {
			if len(l.GetValue()) > longestLabel {
				t.Errorf("%s has %d bytes", l.GetName(), len(l.GetValue()))
			}
		}
	}
	if _, err := h.metrics.Gatherer(h).Gather(); err != nil {
		t.Errorf("not all is shown: %v", err)
	}
	h.retire("a\xfe")
	h.retire("a\xfd")
	h.retire(hostile)
	if got := ours(scrape(t, url))["attach_hub_operations_total"]; got != nil {
		t.Errorf("series are left: %v", got)
	}
}

func TestAPanicOfTheSourceCostsOnlyItsOwnMetrics(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	h.engage("a.example.com")
	h.change(func() { h.panics = true })
	families := scrape(t, url)
	if got := value(t, families, "attach_hub_retries_total", "operation", "attach"); got != 0 {
		t.Errorf("what was counted is %v", got)
	}
	if families["attach_hub_driver_up"] != nil {
		t.Error("there is a state, and nobody told it")
	}
	h.change(func() { h.panics = false })
	if got := value(t, scrape(t, url), "attach_hub_driver_up"); got != 1 {
		t.Errorf("when the source is well again, up is %v", got)
	}
}

// TestMetricsAreAsPromlintLikesThem covers the metrics of this package; what others
// registered is theirs.
func TestMetricsAreAsPromlintLikesThem(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com").Drift("kind", "action")
	h.change(func() { h.overview.Unserved = map[string]int{"b.example.com": 3} })
	families, err := prometheus.Gatherers{h.metrics.registry, gauges(h)}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestCountingAndScrapingAtOnceLosesNothing(t *testing.T) {
	h := newFakeHub()
	url := startServer(t, h)
	d := h.engage("a.example.com")
	var counters sync.WaitGroup
	for range 8 {
		counters.Go(func() {
			for range 200 {
				d.Operation(Detach, Success, time.Millisecond)
				d.Call(publish, codes.Internal, time.Millisecond)
				d.Retry(Detach)
				d.Drift("kind", "action")
				d.Observed(Differs)
				d.ForeignWriter()
			}
		})
	}
	for i := range 5 {
		name := fmt.Sprintf("other-%d", i)
		h.engage(name)
		scrape(t, url)
		h.retire(name)
	}
	counters.Wait()
	families := scrape(t, url)
	for _, name := range []string{"attach_hub_operation_seconds", "csi_sidecar_operations_seconds", "attach_hub_retries_total", "attach_hub_drift_total", "attach_hub_foreign_writer_total"} {
		sum := 0.0
		for _, m := range families[name].GetMetric() {
			sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		if sum != 1600 {
			t.Errorf("%s is %v, want 1600", name, sum)
		}
	}
}

func TestResultsOfErrors(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, tc := range []struct {
		err  error
		want Result
	}{
		{nil, Success},
		{status.Error(codes.Unavailable, ""), Unavailable},
		{status.Error(codes.Aborted, ""), Unavailable},
		{fmt.Errorf("publish: %w", status.Error(codes.ResourceExhausted, "")), Unavailable},
		{errors.Join(errors.New("away"), status.Error(codes.Unavailable, "")), Unavailable},
		{status.Error(codes.DeadlineExceeded, ""), Timeout},
		{fmt.Errorf("publish: %w", context.DeadlineExceeded), Timeout},
		{context.Canceled, Timeout},
		{status.Error(codes.NotFound, ""), Refused},
		{status.Error(codes.InvalidArgument, ""), Refused},
		{status.Error(codes.FailedPrecondition, ""), Refused},
		{status.Error(codes.Internal, ""), Failed},
		{status.Error(codes.Unknown, ""), Failed},
		{status.Error(codes.Code(99), ""), Failed},
		{fmt.Errorf("patch: %w", apierrors.NewNotFound(nodes, "n")), Kubernetes},
		{apierrors.NewTimeoutError("", 1), Kubernetes},
		{errors.New("the node has no such driver"), Failed},
	} {
		if got := ResultOf(tc.err); got != tc.want {
			t.Errorf("%v: got %s, want %s", tc.err, got, tc.want)
		}
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if got := ResultOf(status.Error(code, "")); !slices.Contains(Results, got) || (got == Success) != (code == codes.OK) {
			t.Errorf("%s: got %s", code, got)
		}
	}
}
