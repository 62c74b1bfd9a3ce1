package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Options say what to measure.
type Options struct {
	Cases    []string  // names; empty: all
	Rounds   int       // 0: as each case says
	Hub      string    // binary of cmd/csi-attach-hub
	Proxy    string    // binary of cmd/csi-attach-proxy, which the case proxies needs
	Testbed  string    // binary of cmd/testbed, for the baseline
	Sidecar  string    // binary of csi-attacher; empty: without it
	Profiles string    // folder for CPU and heap profiles of the hub; empty: none
	Command  string    // how this was started, for the report
	Keep     bool      // the folders with the logs
	Progress io.Writer // gets a line for each step
	Last     Report    // an earlier report, to estimate how much time is left; may be empty
	// Measured gets the report after each case, so that it can be kept. It may be nil.
	Measured func(Report) error

	after []Case // those that Run measures after this one
}

func (o Options) check() error {
	if o.Hub == "" || o.Testbed == "" || o.Progress == nil {
		return errors.New("bench: Hub, Testbed and Progress must be set")
	}
	if o.Rounds < 0 {
		return fmt.Errorf("bench: %d rounds: at least one is needed", o.Rounds)
	}
	for _, binary := range []string{o.Hub, o.Proxy, o.Testbed, o.Sidecar} {
		if binary == "" {
			continue
		}
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	return nil
}

// chosen returns the cases to measure, in their order.
func (o Options) chosen() ([]Case, error) {
	var chosen []Case
	for _, c := range Cases() {
		if len(o.Cases) == 0 || slices.Contains(o.Cases, c.Name) {
			chosen = append(chosen, c)
		}
	}
	for _, name := range o.Cases {
		if !slices.Contains(CaseNames(), name) {
			return nil, fmt.Errorf("bench: there is no case %q: choose from %s", name, strings.Join(CaseNames(), ", "))
		}
	}
	return chosen, nil
}
