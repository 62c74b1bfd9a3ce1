package main

import (
	"context"
	"maps"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// settleEvery and settleFor bound the wait until the API server has counted the last
	// requests: it counts a request after its answer, and watchers may see the change before.
	settleEvery = 100 * time.Millisecond
	settleFor   = 3 * time.Second
)

// requests counts what attachers asked of the API server.
type requests struct {
	writes int // of VolumeAttachments and PersistentVolumes
	reads  int // of what attachers read
	others int // writes of all else
}

// countRequests returns the requests since the start of the API server. It waits until the API server
// has counted all requests of attachers.
func countRequests(ctx context.Context, plane *testbed.ControlPlane) (testbed.RequestCounts, error) {
	last, err := plane.Requests(ctx)
	for range settleFor / settleEvery {
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(settleEvery):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		var now testbed.RequestCounts
		if now, err = plane.Requests(ctx); maps.Equal(only(now, attachers), only(last, attachers)) {
			return now, err
		}
		last = now
	}
	return last, err
}

// requestsOf sorts the requests between two counts. This program itself creates and deletes
// VolumeAttachments but never changes one, and the control plane has no controllers.
func requestsOf(before, after testbed.RequestCounts) requests {
	diff := after.Since(before)
	return requests{
		writes: diff.Sum(func(k testbed.RequestKey) bool { return attachers(k) && testbed.IsWrite(k) }),
		reads:  diff.Sum(func(k testbed.RequestKey) bool { return attachers(k) && !testbed.IsWrite(k) }),
		others: diff.Sum(func(k testbed.RequestKey) bool {
			return testbed.IsWrite(k) && k.Resource != "volumeattachments" && k.Resource != "persistentvolumes"
		}),
	}
}

// attachers reports whether only attachers make such requests. It leaves out leases, Events and watches.
func attachers(k testbed.RequestKey) bool {
	switch k.Resource {
	case "volumeattachments", "persistentvolumes":
		switch k.Verb {
		case "PATCH", "PUT", "APPLY", "GET", "LIST":
			return true
		}
	case "csinodes", "csidrivers", "nodes", "secrets":
		return k.Verb == "GET" || k.Verb == "LIST"
	}
	return false
}

func only(counts testbed.RequestCounts, match func(testbed.RequestKey) bool) testbed.RequestCounts {
	kept := maps.Clone(counts)
	maps.DeleteFunc(kept, func(k testbed.RequestKey, _ int) bool { return !match(k) })
	return kept
}
