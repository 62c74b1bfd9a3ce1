package lease

import (
	"context"
	"fmt"
	"time"
)

// Leases competes for leases on behalf of one process.
type Leases struct{ opts Options }

// New checks the options.
func New(o Options) (*Leases, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return &Leases{opts: o}, nil
}

// Claim says for which lease to compete, and what to do while it is held.
type Claim struct {
	Driver string // CSI driver name: what replicas share
	Lease  Name
	// Serve is called each time the lease has been acquired. stop ends when work is
	// to wind down: the driver goes to another replica, the context of Hold has
	// ended, or the lease is lost. It returns only when all work has ended, nil if it
	// did because of stop: the lease is released only then.
	Serve func(stop context.Context, t *Term) error
	// Waiting is told, for people, why the lease is not held, whenever that
	// changes. It must not block, and may be nil.
	Waiting func(reason string)
}

// Holder says who holds a lease. The times are by the clock of the holder.
type Holder struct {
	Identity string
	Since    time.Time // when it acquired the lease
	Renewed  time.Time
	Mine     bool // it is this process
}

// Member is a living replica.
type Member struct {
	Identity string
	Drivers  []string // that it is able to serve, sorted
	Self     bool
}

// Run watches leases and announces this replica. It blocks until ctx ends and then
// takes its announcement back. It must outlive all calls of Hold.
func (l *Leases) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Hold competes for the lease until ctx ends and serves while it is held. It
// returns after the lease is released, with the error of Serve if that is why.
func (l *Leases) Hold(ctx context.Context, c Claim) error { <-ctx.Done(); return nil }

// Holder is who holds the lease, as last seen, if anybody does.
func (l *Leases) Holder(n Name) (Holder, bool) { return Holder{}, false }

// Members are the living replicas, sorted by identity.
func (l *Leases) Members() []Member { return nil }

// Check is an error if a lease that is held was not renewed for its duration and grace.
func (l *Leases) Check(grace time.Duration) error { return nil }
