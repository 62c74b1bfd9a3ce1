package access

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// places is how many questions that were answered yes lately are asked at once, and as many new ones:
	// whoever floods the hub with new questions takes no place from the others.
	places = 2
	// maxClients bounds the clients whose rate is known.
	maxClients = 1000
	// clientTTL is how long the rate of a client is known; longer than its burst takes to fill.
	clientTTL = 10 * time.Minute
)

// errTooMany is returned for a new question of a client that asked too many.
var errTooMany = errors.New("too many requests with tokens or paths that are new to the hub")

// gate bounds the questions to the API server, which also has to answer for the volumes.
type gate struct {
	before, new chan struct{} // filled by the questions that are asked now
}

func newGate() *gate {
	return &gate{before: make(chan struct{}, places), new: make(chan struct{}, places)}
}

// quota bounds the new questions of one kind: those of one client, so that the others have their share, and those of all
// clients. A client has one new question at a time.
type quota struct {
	perSecond rate.Limit // of a client
	burst     int
	all       *rate.Limiter

	mu      sync.Mutex
	clients *cache.LRUExpireCache // *client by name; guarded by mu
}

type client struct {
	rate *rate.Limiter
	turn chan struct{} // filled while it asks
}

// newQuota returns a quota for a client, with five clients' worth for all of them.
func newQuota(perSecond rate.Limit, burst int) *quota {
	return &quota{perSecond: perSecond, burst: burst, all: rate.NewLimiter(5*perSecond, 5*burst), clients: cache.NewLRUExpireCache(maxClients)}
}

func (q *quota) client(name string) *client {
	q.mu.Lock()
	defer q.mu.Unlock()
	if known, ok := q.clients.Get(name); ok {
		return known.(*client)
	}
	c := &client{rate: rate.NewLimiter(q.perSecond, q.burst), turn: make(chan struct{}, 1)}
	q.clients.Add(name, c, clientTTL)
	return c
}

// ask calls f for a new question when it has a place. It returns errTooMany at once if the client or all clients together asked
// too many, an error if ctx ends before f is called, or that of f.
func (g *gate) ask(ctx context.Context, q *quota, name string, f func() error) error {
	c := q.client(name)
	if !c.rate.Allow() || !q.all.Allow() {
		return errTooMany
	}
	return hold(ctx, c.turn, func() error { return hold(ctx, g.new, f) })
}

// askAgain calls f for a question that was answered yes lately when it has a place. There are few of them, so they have no
// quota. It returns an error if ctx ends before f is called, or that of f.
func (g *gate) askAgain(ctx context.Context, f func() error) error { return hold(ctx, g.before, f) }

// hold calls f with a place taken. It returns an error if ctx ends before there is one, or that of f.
func hold(ctx context.Context, place chan struct{}, f func() error) error {
	select {
	case place <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-place }()
	return f()
}
