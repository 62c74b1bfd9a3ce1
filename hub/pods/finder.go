package pods

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

const (
	// maxNodes bounds the nodes that are kept.
	maxNodes = 500
	// refreshAfter is the age of an answer from which on a question leads to a new listing.
	refreshAfter = 15 * time.Second
	// keepFor is how long an answer is shown, and how long a node is kept that nobody asks for. It is longer
	// than it takes to list maxNodes nodes.
	keepFor = 5 * time.Minute
	// retryRefused is the pause after the API server has refused to list Pods.
	retryRefused = 5 * time.Minute
	// All requests together stay below these limits.
	requestsPerSecond, requestsBurst = 2, 10
)

// Finder finds the Pods that use a claim on a node. Its methods are safe for concurrent use.
type Finder struct {
	pods  Lister
	limit *rate.Limiter
	wake  chan struct{} // has a value after a node became due

	mu      sync.Mutex
	nodes   map[string]*node // by name, at most maxNodes; guarded by mu
	refused time.Time        // the last request, if the API server refused it; guarded by mu
}

// node is what is known about the Pods of a node.
type node struct {
	asked  time.Time           // when PodsOf was last called
	due    bool                // it has to be listed
	tried  time.Time           // when the last listing began
	listed time.Time           // when the last successful listing ended; zero before
	pods   map[string][]string // "namespace/name" of a claim to those of its Pods
}

// New returns a Finder that lists Pods through a client. It starts nothing.
func New(pods Lister) *Finder {
	return &Finder{pods: pods, limit: rate.NewLimiter(requestsPerSecond, requestsBurst), wake: make(chan struct{}, 1), nodes: map[string]*node{}}
}

// PodsOf returns "namespace/name" of the Pods on a node that use a claim and have not ended, sorted, at most
// maxPods. It never blocks: it returns what is known, at most 5 minutes old, and nil if nothing is known yet. If
// the answer is older than 15 s, Run lists the node again.
func (f *Finder) PodsOf(nodeName, namespace, claim string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if nodeName == "" || now.Sub(f.refused) < retryRefused {
		return nil
	}
	n := f.nodes[nodeName]
	if n == nil {
		if !f.makeRoom(now) {
			return nil
		}
		n = &node{}
		f.nodes[nodeName] = n
	}
	n.asked = now
	if !n.due && now.Sub(n.tried) >= refreshAfter {
		n.due = true
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	if now.Sub(n.listed) >= keepFor {
		return nil
	}
	return slices.Clone(n.pods[namespace+"/"+claim])
}

// makeRoom reports whether another node can be kept. It drops the node that was asked for least recently, unless
// somebody still looks at it: a view of more than maxNodes nodes would drop each node before it is listed.
func (f *Finder) makeRoom(now time.Time) bool {
	if len(f.nodes) < maxNodes {
		return true
	}
	oldest, asked := "", now
	for name, n := range f.nodes {
		if n.asked.Before(asked) {
			oldest, asked = name, n.asked
		}
	}
	if now.Sub(asked) < refreshAfter {
		return false
	}
	delete(f.nodes, oldest)
	return true
}

// Allowed reports whether the hub may list Pods, as far as it knows: it is true until the API server refuses a
// request, and again after the API server has answered one.
func (f *Finder) Allowed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused.IsZero()
}

// Run lists the Pods of nodes that were asked for until ctx ends. It returns nil: no failure ends it.
func (f *Finder) Run(ctx context.Context) error {
	tick := time.NewTicker(keepFor) // to drop nodes when nobody asks any more
	defer tick.Stop()
	for ctx.Err() == nil {
		if name := f.next(); name != "" {
			f.refresh(ctx, name)
			continue
		}
		select {
		case <-f.wake:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// next returns the due node whose last listing is the oldest, "" if none is due. It drops the nodes that nobody
// has asked for lately.
func (f *Finder) next() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, next := time.Now(), ""
	for name, n := range f.nodes {
		if now.Sub(n.asked) >= keepFor {
			delete(f.nodes, name)
		} else if n.due && (next == "" || n.tried.Before(f.nodes[next].tried)) {
			next = name
		}
	}
	if next != "" {
		f.nodes[next].due, f.nodes[next].tried = false, now
	}
	return next
}

// refresh lists the Pods of a node. After a failure the node keeps what is known, and the next question after
// refreshAfter leads to another try.
func (f *Finder) refresh(ctx context.Context, name string) {
	logger := klog.FromContext(ctx)
	found, err := f.list(ctx, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err):
		if f.refused.IsZero() {
			logger.Info("Cannot list Pods, so status and pages do not show which Pods wait for a volume",
				"err", err, "see", "value pods.list of deploy/chart", "retryAfter", retryRefused)
		}
		f.refused = time.Now()
		clear(f.nodes)
	case err != nil:
		logger.V(2).Info("Listing the Pods of a node failed", "node", name, "err", err)
	default:
		if !f.refused.IsZero() {
			logger.Info("Can list Pods now")
			f.refused = time.Time{}
		}
		if n := f.nodes[name]; n != nil { // else it was dropped meanwhile
			n.pods, n.listed = found, time.Now()
		}
	}
}
