package bench

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const floorName = "floor"

// floorCompetitor makes only the calls that correctness needs.
func floorCompetitor() competitor {
	return competitor{name: floorName, start: func(ctx context.Context, s *stage) (*attacher, error) {
		a := &attacher{name: floorName}
		address, err := testbed.FreeAddress(ctx)
		if err != nil {
			return a, err
		}
		task := floorTask{Kubeconfig: s.plane.Kubeconfig(), Drivers: map[string]string{}, HTTPEndpoint: address, Fresh: s.c.unguarded}
		for _, d := range s.drivers {
			task.Drivers[d.name] = d.endpoint()
		}
		argument, err := json.Marshal(task)
		if err != nil {
			return a, fmt.Errorf("write the floor's argument: %w", err)
		}
		p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{
			Name: floorName, Path: s.opts.Testbed, Args: []string{FloorCommand, string(argument)},
			LogPath: s.file("floor.log"), ReadyLine: floorReady,
		})
		if err != nil {
			return a, err
		}
		a.processes = append(a.processes, p)
		a.metrics = append(a.metrics, "http://"+address+"/metrics")
		return a, nil
	}}
}
