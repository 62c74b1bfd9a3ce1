package registry

import (
	"context"
	"slices"
)

// Source looks for drivers in one place. It extracts and does not decide: what it
// sends is what it saw, and a Registry makes of that what is served.
//
// A driver from a Source other than drivers.yaml has no Settings, and its Endpoint
// is what somebody wrote, unchecked, or "" where nobody did.
type Source interface {
	// Name says in the log where the source looks. Sources that run at once have
	// different names.
	Name() string
	// Run sends everything that it sees: first as soon as it knows it, then after each
	// change. A set is sent whole, also if it is empty; only the latest one counts, so
	// a receiver that is late misses those before. Run does not change what it sent.
	// It blocks until ctx ends, returns nil promptly then, and leaves no goroutine
	// behind. It does not close out. It may be called again after it has returned.
	Run(ctx context.Context, out chan<- []Driver) error
}

// ConfigSource is the Source of the drivers that a user listed one by one, and of
// what a user said about all others.
type ConfigSource interface {
	Source
	// Config returns the Config of which Run sends the drivers. It is complete before
	// Run is called, does not block, and may be newer than what was sent last.
	Config() *Config
}

// outbox holds the latest set of a Source until the receiver is there.
type outbox struct {
	out     chan<- []Driver
	latest  []Driver
	filled  bool // latest was put once
	waiting bool // latest is not sent
}

// put replaces the set to be sent. One that is equal to the last one is not sent
// again.
func (o *outbox) put(set []Driver) {
	if !o.filled || !slices.Equal(o.latest, set) {
		o.putAnyway(set)
	}
}

// putAnyway is put for a set that comes with other news.
func (o *outbox) putAnyway(set []Driver) {
	o.latest, o.filled, o.waiting = set, true, true
}

// channel is where latest is to be sent; nil, which blocks, if it was.
func (o *outbox) channel() chan<- []Driver {
	if !o.waiting {
		return nil
	}
	return o.out
}

func (o *outbox) sent() { o.waiting = false }
