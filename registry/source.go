package registry

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Source looks for drivers in one place. It extracts and does not decide: a Registry
// decides which of the drivers are served.
//
// A driver from a Source has no Settings, and its Endpoint is what somebody wrote,
// unchecked, or "" where nobody did.
type Source interface {
	// Name says in the log where the source looks. Sources that run at once have
	// different names.
	Name() string
	// Run sends every driver that it sees: first as soon as it knows all, then after each
	// change. A set is sent whole, also if it is empty; only the latest one counts.
	// send does not block, and Run does not change what it sent.
	// Run blocks until ctx ends, returns nil promptly then, and leaves no goroutine
	// behind. It may be called again after it has returned.
	Run(ctx context.Context, send func([]Driver)) error
}

// ConfigSource holds the drivers that a user listed one by one, and what a user said
// about all others.
type ConfigSource interface {
	// Name says in the log where the Config comes from.
	Name() string
	// Config returns the latest Config. It does not block; nil means that there is none yet.
	Config() *Config
	// Run calls changed after each change of Config. changed does not block. Run ends as
	// that of a Source.
	Run(ctx context.Context, changed func()) error
}

// askTimeout bounds how long a driver is waited for that is asked for its name.
const askTimeout = 10 * time.Second

// askName asks for the name of the driver at an endpoint.
func askName(ctx context.Context, ask func(context.Context, Endpoint) (string, error), e Endpoint, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name, err := ask(ctx, e)
	if err == nil && name == "" {
		err = errors.New("the driver reported an empty name")
	}
	return name, err
}

// notify signals on a channel of capacity 1, unless a signal waits there already.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sendChanges returns a send that skips a set that equals the set before it.
func sendChanges(send func([]Driver)) func([]Driver) {
	sent := false
	var last []Driver
	return func(set []Driver) {
		if !sent || !slices.Equal(last, set) {
			sent, last = true, set
			send(set)
		}
	}
}
