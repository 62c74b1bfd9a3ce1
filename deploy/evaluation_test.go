package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// prometheusServer scrapes and evaluates as Prometheus does, at the times that a test says.
type prometheusServer struct {
	t       *testing.T
	version int // of Prometheus: since 3 it stores le="60" as le="60.0"
	engine  *promql.Engine
	keep    []string             // metrics; others are not kept
	series  map[string]*recorded // by labels
}

type recorded struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newPrometheusServer(t *testing.T, keep ...string) *prometheusServer {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e8, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{})})
	t.Cleanup(func() { _ = engine.Close() })
	return &prometheusServer{t: t, version: 3, engine: engine, keep: keep, series: map[string]*recorded{}}
}

// scrape keeps what a Pod shows at a time.
func (p *prometheusServer) scrape(at time.Time, pod string, gatherer prometheus.Gatherer) {
	p.t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	var page bytes.Buffer
	for _, f := range families {
		if !slices.Contains(p.keep, f.GetName()) {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&page, f); err != nil {
			p.t.Fatal(err)
		}
	}
	p.ingest(at, pod, page.Bytes())
}

// ingest keeps the samples of a page of metrics.
func (p *prometheusServer) ingest(at time.Time, pod string, page []byte) {
	p.t.Helper()
	parsed, err := textparse.New(page, string(expfmt.NewFormat(expfmt.TypeTextPlain)), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for {
		entry, err := parsed.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var own labels.Labels
		parsed.Labels(&own)
		b := labels.NewBuilder(own)
		b.Set("pod", pod).Set("namespace", "csi-attach-hub").Set("job", "csi-attach-hub")
		if p.version < 3 { // it stores the text of the page
			b.Set("le", strings.TrimSuffix(own.Get("le"), ".0"))
		}
		_, _, value := parsed.Series()
		p.add(at, own.Get(model.MetricNameLabel), b.Labels(), value)
	}
}

func (p *prometheusServer) add(at time.Time, name string, l labels.Labels, value float64) {
	b := labels.NewBuilder(l)
	b.Set(model.MetricNameLabel, name)
	l = b.Labels()
	s := p.series[l.String()]
	if s == nil {
		s = &recorded{labels: l}
		p.series[l.String()] = s
	}
	s.samples = append(s.samples, sample{at.UnixMilli(), value})
}

// evaluate returns the result of an expression at a time.
func (p *prometheusServer) evaluate(at time.Time, expression string) promql.Vector {
	p.t.Helper()
	q, err := p.engine.NewInstantQuery(p.t.Context(), p, nil, expression, at)
	if err != nil {
		p.t.Fatal(err)
	}
	defer q.Close()
	result, err := q.Exec(p.t.Context()).Vector()
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return slices.Clone(result)
}

// record evaluates a recording rule.
func (p *prometheusServer) record(at time.Time, name, expression string) {
	for _, s := range p.evaluate(at, expression) {
		p.add(at, name, s.Metric, s.F)
	}
}

// Querier implements storage.Queryable.
func (p *prometheusServer) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found seriesSet
		for _, s := range p.series {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
				found.left = append(found.left, storage.NewListSeries(s.labels, s.samples))
			}
		}
		return &found
	}}, nil
}

type seriesSet struct {
	left []storage.Series
	now  storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.now, s.left = s.left[0], s.left[1:]
	return true
}
func (s *seriesSet) At() storage.Series { return s.now }
func (s *seriesSet) Err() error         { return nil }

func (s *seriesSet) Warnings() annotations.Annotations { return nil }

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
