package testbed

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strings"
)

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
	watches := map[string]int{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "apiserver_longrunning_requests{")
		if !ok {
			continue
		}
		labels, value, err := parseSample(rest)
		if err != nil {
			return nil, fmt.Errorf("read metrics of the API server: %q: %w", lines.Text(), err)
		}
		if labels["verb"] == "WATCH" {
			watches[labels["resource"]] += value
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics of the API server: %w", err)
	}
	return watches, nil
}
