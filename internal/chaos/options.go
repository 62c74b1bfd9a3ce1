package chaos

import (
	"errors"
	"io"
	"time"
)

// Options of a run.
type Options struct {
	// Seed fixes the plan: which faults begin in which order, and where. The timing
	// of processes varies all the same.
	Seed uint64
	// Faults is how many faults there are at least; a calm run has none.
	Faults int
	// Hub is the binary of cmd/csi-attach-hub.
	Hub string
	// Dir is an existing folder for sockets, state and logs; its path must be short. The caller
	// removes it.
	Dir string
	// Drivers is how many there are; 0 means 4.
	Drivers int
	// QuietWithin bounds how long it may take after a stretch until all is as it was asked
	// for; 0 means 90 s.
	QuietWithin time.Duration
	// Out gets a line for each stretch; nil: nothing is told.
	Out io.Writer
}

func (o Options) check() error {
	if o.Hub == "" || o.Dir == "" {
		return errors.New("run chaos: Hub and Dir must be set")
	}
	return nil
}

// filled returns the options with the defaults.
func (o Options) filled() Options {
	if o.Drivers == 0 {
		o.Drivers = 4
	}
	if o.QuietWithin == 0 {
		o.QuietWithin = 90 * time.Second
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}
