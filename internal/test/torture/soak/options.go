package soak

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Options of a run.
type Options struct {
	Duration time.Duration // of the load
	Every    time.Duration // between two samples
	Drivers  int
	Volumes  int           // of each driver; each is attached to one node at a time
	Latency  time.Duration // of the drivers' calls
	Seed     uint64        // of the load
	Hub      string        // binary of cmd/csi-attach-hub
	Dir      string        // an existing folder for sockets and logs, with a short path; the caller removes it
	Out      io.Writer     // gets progress lines
}

func (o Options) check() error {
	if o.Hub == "" || o.Dir == "" || o.Out == nil {
		return errors.New("soak: Hub, Dir and Out must be set")
	}
	if o.Drivers < 1 || o.Volumes < 1 {
		return fmt.Errorf("soak: %d drivers with %d volumes each: one of each is needed", o.Drivers, o.Volumes)
	}
	if o.Every <= 0 || o.Duration/leastSamples < o.Every {
		return fmt.Errorf("soak: a sample every %v for %v: at least %d samples are needed", o.Every, o.Duration, leastSamples)
	}
	return nil
}

// leastSamples is the least number of samples that Judge needs.
const leastSamples = 12
