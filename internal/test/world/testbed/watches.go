package testbed

import "context"

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
