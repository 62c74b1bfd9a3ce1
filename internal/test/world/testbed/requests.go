package testbed

import (
	"bytes"
	"context"
	"fmt"

	dto "github.com/prometheus/client_model/go"
)

// RequestKey is one kind of request that the API server counts.
type RequestKey struct {
	Verb        string // GET, LIST, WATCH, POST, PUT, PATCH, APPLY, DELETE, DELETECOLLECTION
	Group       string // API group, "" for the core group
	Resource    string // plural, for example volumeattachments
	Subresource string // for example status
	Code        string // HTTP status code
}

// RequestCounts are requests by kind.
type RequestCounts map[RequestKey]int

// Since returns the requests that came after before was taken. A count that
// went down, because the API server was started again, counts from zero.
func (c RequestCounts) Since(before RequestCounts) RequestCounts {
	diff := RequestCounts{}
	for key, n := range c {
		if was := before[key]; was <= n {
			n -= was
		}
		if n > 0 {
			diff[key] = n
		}
	}
	return diff
}

// Sum adds up the requests of the kinds that match.
func (c RequestCounts) Sum(match func(RequestKey) bool) int {
	sum := 0
	for key, n := range c {
		if match(key) {
			sum += n
		}
	}
	return sum
}

// IsWrite matches every kind of request that changes something.
func IsWrite(k RequestKey) bool {
	switch k.Verb {
	case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		return true
	}
	return false
}

// Requests returns all requests since the API server started, from all its
// clients, those inside the control plane included. A request is counted when
// its answer has been sent, so the very last one may be missing; a watch when
// it ends.
func (cp *ControlPlane) Requests(ctx context.Context) (RequestCounts, error) {
	body, err := cp.metrics(ctx)
	if err != nil {
		return nil, err
	}
	return parseRequests(body)
}

func (cp *ControlPlane) metrics(ctx context.Context) ([]byte, error) {
	body, err := cp.client.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("get metrics of the API server: %w", err)
	}
	return body, nil
}

// parseRequests reads apiserver_request_total in the Prometheus text format.
func parseRequests(text []byte) (RequestCounts, error) {
	samples, err := parseSamples(text, "apiserver_request_total")
	counts := RequestCounts{}
	for _, s := range samples {
		labels := labelsOf(s)
		// Kinds that differ only in other labels, such as the version, add up.
		counts[RequestKey{
			Verb:        labels["verb"],
			Group:       labels["group"],
			Resource:    labels["resource"],
			Subresource: labels["subresource"],
			Code:        labels["code"],
		}] += int(value(s))
	}
	return counts, err
}

// parseSamples reads the samples of one metric. Other lines are not parsed: the API server has
// thousands of them.
func parseSamples(text []byte, metric string) ([]*dto.Metric, error) {
	var own bytes.Buffer
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte(metric+"{")) {
			own.Write(line)
		}
	}
	own.WriteString("\n")
	families, err := parseMetrics(&own)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the API server: %w", err)
	}
	return families[metric].GetMetric(), nil
}

// Watches returns how many watches of each resource there have been since the API server
// started, those included that go on. Informers may fill their caches by a watch
// instead of a list, and Requests counts a watch only when it ends.
func (cp *ControlPlane) Watches(ctx context.Context) (map[string]int, error) {
	body, err := cp.metrics(ctx)
	if err != nil {
		return nil, err
	}
	watches, err := parseWatches(body)
	if err != nil {
		return nil, err
	}
	requests, err := parseRequests(body)
	if err != nil {
		return nil, err
	}
	for key, ended := range requests {
		if key.Verb == "WATCH" {
			watches[key.Resource] += ended
		}
	}
	return watches, nil
}

// parseWatches reads the watches that go on, by resource, in the Prometheus text format.
func parseWatches(text []byte) (map[string]int, error) {
	samples, err := parseSamples(text, "apiserver_longrunning_requests")
	watches := map[string]int{}
	for _, s := range samples {
		if labels := labelsOf(s); labels["verb"] == "WATCH" {
			watches[labels["resource"]] += int(value(s))
		}
	}
	return watches, err
}

// PriorityLevel has the requests of one priority level of API Priority and Fairness.
type PriorityLevel struct {
	Waiting   int // in a queue
	Executing int
	Rejected  int // since the start of the API server
}

// PriorityLevel returns the requests of a priority level at this moment.
func (cp *ControlPlane) PriorityLevel(ctx context.Context, name string) (PriorityLevel, error) {
	body, err := cp.metrics(ctx)
	if err != nil {
		return PriorityLevel{}, err
	}
	var level PriorityLevel
	for metric, sum := range map[string]*int{
		"apiserver_flowcontrol_current_inqueue_requests":   &level.Waiting,
		"apiserver_flowcontrol_current_executing_requests": &level.Executing,
		"apiserver_flowcontrol_rejected_requests_total":    &level.Rejected,
	} {
		samples, err := parseSamples(body, metric)
		if err != nil {
			return PriorityLevel{}, err
		}
		for _, s := range samples {
			if labelsOf(s)["priority_level"] == name {
				*sum += int(value(s))
			}
		}
	}
	return level, nil
}
