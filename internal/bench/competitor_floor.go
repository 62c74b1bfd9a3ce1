package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	floorName = "floor"
	// FloorCommand is the subcommand of testbed that is the floor: a process of its own,
	// so that what it takes can be told from what this program does. It is told of the
	// drivers by a file, a JSON object of names and endpoints, and prints a line that
	// begins with FloorReady.
	FloorCommand = "bench-floor"
	// FloorReady is what the floor says when it is ready.
	FloorReady = "floor "
)

// floorCompetitor makes only the calls that correctness needs.
func floorCompetitor() competitor {
	return competitor{name: floorName, start: func(ctx context.Context, s *stage) (*attacher, error) {
		a := &attacher{name: floorName}
		endpoints, err := json.Marshal(s.endpoints())
		if err != nil {
			return a, fmt.Errorf("write endpoints: %w", err)
		}
		if err := os.WriteFile(s.file("endpoints.json"), endpoints, 0o644); err != nil {
			return a, fmt.Errorf("write endpoints: %w", err)
		}
		address, err := freeAddress(ctx)
		if err != nil {
			return a, err
		}
		args := []string{FloorCommand, "--kubeconfig", s.plane.Kubeconfig(), "--drivers", s.file("endpoints.json"), "--http-endpoint", address}
		if s.c.Fresh {
			args = append(args, "--fresh")
		}
		p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{
			Name: floorName, Path: s.opts.Testbed, Args: args, LogPath: s.file("floor.log"), ReadyLine: FloorReady,
		})
		if err != nil {
			return a, err
		}
		a.processes = append(a.processes, p)
		a.metrics = append(a.metrics, "http://"+address+"/metrics")
		return a, nil
	}}
}
