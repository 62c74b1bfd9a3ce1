package testbed

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metricsTimeout bounds one request for metrics.
const metricsTimeout = time.Minute

// Get hands the body of an answer to read. Another status than 200 is an error.
func Get(ctx context.Context, url string, read func(io.Reader) error) error {
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

// Metrics returns the metrics that are served at a URL, by name.
func Metrics(ctx context.Context, url string) (families map[string]*dto.MetricFamily, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	err = Get(ctx, url, func(body io.Reader) error {
		families, err = parseMetrics(body)
		return err
	})
	return families, err
}

func parseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// SumMetric adds up the samples of a metric that have the labels, given as names and values in
// turn. Without a sample it is 0.
func SumMetric(family *dto.MetricFamily, labels ...string) (sum float64) {
	for _, m := range family.GetMetric() {
		has := labelsOf(m)
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			sum += value(m)
		}
	}
	return sum
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range m.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

func value(m *dto.Metric) float64 {
	return m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
}
