package torture

import (
	"errors"
	"io"
	"path/filepath"
	"time"
)

// Options of a run.
type Options struct {
	// Seed fixes the plan: which faults begin in which order, and where. The timing
	// of processes still varies.
	Seed uint64
	// Faults is the least number of faults; a calm run has none.
	Faults int
	// Hub is the binary of cmd/csi-attach-hub.
	Hub string
	// Dir is an existing folder for sockets, state and logs. Its path must be short: paths of
	// sockets have narrow limits. The caller removes it.
	Dir string
	// Drivers is the number of drivers; 0 means 4.
	Drivers int
	// QuietWithin bounds the time from the end of a stretch until the audit finds nothing; 0 means
	// 90 s.
	QuietWithin time.Duration
	// History is the file that gets the history, one event a line, as JSON; empty means history.jsonl in Dir.
	History string
	// Out gets a line for each stretch; nil: no lines.
	Out io.Writer
}

func (o Options) check() error {
	if o.Hub == "" || o.Dir == "" {
		return errors.New("run chaos: Hub and Dir must be set")
	}
	return nil
}

// filled returns the options with their defaults.
func (o Options) filled() Options {
	if o.Drivers == 0 {
		o.Drivers = 4
	}
	if o.QuietWithin == 0 {
		o.QuietWithin = 90 * time.Second
	}
	if o.History == "" {
		o.History = filepath.Join(o.Dir, "history.jsonl")
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}
