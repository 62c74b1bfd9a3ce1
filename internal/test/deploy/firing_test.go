package deploy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// firing has, for each alert, series of one replica or two, and the labels of what fires after 20 minutes: "" for nothing.
var firing = map[string][]struct{ series, fires string }{
	"AttachHubDown": {
		{``, `{}`},
		{`attach_hub_config_hash{pod="a"} 7x20`, ``},
	},
	"AttachHubConfigRejected": {
		{`attach_hub_config_last_reload_successful{namespace="n",pod="a",file="f"} 0x20
  attach_hub_config_last_reload_successful{namespace="n",pod="a",file="g"} 1x20
  attach_hub_config_last_reload_successful{namespace="n",pod="b",file="f"} 1x20`, `{file="f", namespace="n", pod="a"}`},
	},
	"AttachHubDriverDown": {
		{`attach_hub_driver_up{driver="d",pod="a"} 0x20
  attach_hub_driver_up{driver="d",pod="b"} 0x20`, `{driver="d"}`},
		{`attach_hub_driver_up{driver="d",pod="a"} 0x20
  attach_hub_driver_up{driver="d",pod="b"} 1x20`, ``},
	},
	"AttachHubNobodyServes": {
		{`attach_hub_driver_up{driver="d"} 1x20
  attach_hub_driver_leader{driver="d"} 0x20
  attach_hub_driver_info{driver="d",mode="active"} 1x20`, `{driver="d"}`},
		{`attach_hub_driver_up{driver="d"} 1x20
  attach_hub_driver_leader{driver="d"} 0x20
  attach_hub_driver_info{driver="d",mode="observe"} 1x20`, ``},
	},
	"AttachHubTwoAttachers": {
		{`attach_hub_driver_leader{driver="d",pod="a"} 1x20
  attach_hub_driver_leader{driver="d",pod="b"} 1x20`, `{driver="d"}`},
		{`attach_hub_foreign_writer_total{driver="d",pod="a"} 0x10 1x10`, `{driver="d"}`},
		{`attach_hub_driver_leader{driver="d",pod="a"} 1x20
  attach_hub_driver_leader{driver="d",pod="b"} 0x20
  attach_hub_foreign_writer_total{driver="d",pod="a"} 3x20`, ``},
	},
	"AttachHubVolumesStuck": {
		{`attach_hub_stuck{driver="d",operation="attach",pod="a"} 2x20`, `{driver="d", operation="attach"}`},
		{`attach_hub_stuck{driver="d",operation="attach",pod="a"} 0x20`, ``},
	},
	"AttachHubDangling": {
		{`attach_hub_dangling_publications{driver="d",pod="a"} 1x20`, `{driver="d"}`},
	},
	"AttachHubUnserved": {
		{`attach_hub_unserved_oldest_seconds{attacher="d",pod="a"} 0+60x20`, `{attacher="d"}`},
		{`attach_hub_unserved_oldest_seconds{attacher="d",pod="a"} 0x20`, ``},
	},
	"AttachHubForbidden": {
		{`rest_client_requests_total{job="csi-attach-hub",namespace="n",pod="a",code="403"} 0+1x20
  rest_client_requests_total{job="other",namespace="n",pod="b",code="403"} 0+1x20`, `{namespace="n", pod="a"}`},
		{`rest_client_requests_total{job="csi-attach-hub",namespace="n",pod="a",code="200"} 0+1x20`, ``},
	},
	"AttachHubSlow": { // slow: a quarter takes five minutes; fine: one in twenty
		{`attach_hub_operation_seconds_bucket{driver="slow",operation="attach",result="success",le="60"} 0+75x20
  attach_hub_operation_seconds_bucket{driver="slow",operation="attach",result="success",le="300"} 0+100x20
  attach_hub_operation_seconds_bucket{driver="slow",operation="attach",result="success",le="+Inf"} 0+100x20
  attach_hub_operation_seconds_bucket{driver="fine",operation="attach",result="success",le="60"} 0+95x20
  attach_hub_operation_seconds_bucket{driver="fine",operation="attach",result="success",le="300"} 0+100x20
  attach_hub_operation_seconds_bucket{driver="fine",operation="attach",result="success",le="+Inf"} 0+100x20`, `{driver="slow"}`},
	},
}

// Prometheus itself evaluates the alerts.
func TestAlertsFireForWhatTheySay(t *testing.T) {
	rules := readRules(t).Spec.Groups[0].Rules
	if len(rules) != 10 || len(firing) != 10 {
		t.Errorf("%d alerts, %d of them tried", len(rules), len(firing))
	}
	for _, r := range rules {
		if len(firing[r.Alert]) == 0 {
			t.Errorf("%s is not tried", r.Alert)
		}
		for _, c := range firing[r.Alert] {
			fires := ""
			for _, result := range evaluate(t, parseSeries(t, c.series), r.Expr) {
				fires += result.String()
				for _, text := range r.Annotations {
					checkMentioned(t, r.Alert, text, result)
				}
			}
			if fires != c.fires {
				t.Errorf("%s fires for %q, want %q, with:\n%s", r.Alert, fires, c.fires, c.series)
			}
		}
	}
}

// parseSeries reads series of a sample per minute.
func parseSeries(t *testing.T, series string) (all stored) {
	t.Helper()
	for line := range strings.Lines(series) {
		l, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		var samples []chunks.Sample
		for m, v := range values {
			samples = append(samples, sample{begin.Add(time.Duration(m) * time.Minute).UnixMilli(), v.Value})
		}
		all = append(all, storage.NewListSeries(l, samples))
	}
	return all
}

var begin = time.Unix(1_800_000_000, 0)

// evaluate returns the labels of each result of an expression, after twenty minutes.
func evaluate(t *testing.T, all stored, expression string) (results []labels.Labels) {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	defer engine.Close()
	q, err := engine.NewInstantQuery(t.Context(), all, nil, expression, begin.Add(20*time.Minute))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	defer q.Close()
	result, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	for _, s := range result {
		results = append(results, s.Metric)
	}
	return results
}

// stored are the series of a Prometheus.
type stored []storage.Series

// Querier implements storage.Queryable.
func (all stored) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		return &selected{left: slices.DeleteFunc(slices.Clone(all), func(s storage.Series) bool {
			return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) })
		})}
	}}, nil
}

type selected struct {
	left []storage.Series
	now  storage.Series
}

func (s *selected) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.now, s.left = s.left[0], s.left[1:]
	return true
}
func (s *selected) At() storage.Series                { return s.now }
func (s *selected) Err() error                        { return nil }
func (s *selected) Warnings() annotations.Annotations { return nil }

type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
