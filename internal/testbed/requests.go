package testbed

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
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
	const metric = "apiserver_request_total{"
	counts := RequestCounts{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), metric)
		if !ok {
			continue
		}
		labels, value, err := parseSample(rest)
		if err != nil {
			return nil, fmt.Errorf("read metrics of the API server: %q: %w", lines.Text(), err)
		}
		// Kinds that differ only in other labels, such as the version, add up.
		counts[RequestKey{
			Verb:        labels["verb"],
			Group:       labels["group"],
			Resource:    labels["resource"],
			Subresource: labels["subresource"],
			Code:        labels["code"],
		}] += value
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics of the API server: %w", err)
	}
	return counts, nil
}

// parseSample reads `name="value",...} 12`.
func parseSample(text string) (map[string]string, int, error) {
	labels := map[string]string{}
	for !strings.HasPrefix(text, "}") {
		name, rest, ok := strings.Cut(text, "=")
		if !ok {
			return nil, 0, fmt.Errorf("no = in %q", text)
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return nil, 0, fmt.Errorf("label %s: %w", name, err)
		}
		if labels[name], err = strconv.Unquote(quoted); err != nil {
			return nil, 0, fmt.Errorf("label %s: %w", name, err)
		}
		text = strings.TrimPrefix(rest[len(quoted):], ",")
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(text[1:]), 64)
	if err != nil {
		return nil, 0, err
	}
	return labels, int(value), nil
}
