package main

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const baselineName = "floor"

// baselineCompetitor is the baseline, which makes only the calls that correctness needs.
func baselineCompetitor() competitor {
	return competitor{name: baselineName, start: func(ctx context.Context, s *stage) (*attacher, error) {
		a := &attacher{name: baselineName}
		address, err := testbed.FreeAddress(ctx)
		if err != nil {
			return a, err
		}
		kubeconfig, err := s.kubeconfig(ctx, metav1.NamespaceDefault, otherAccount)
		if err != nil {
			return a, err
		}
		task := baselineTask{Kubeconfig: kubeconfig, Drivers: map[string]string{}, HTTPEndpoint: address, Fresh: s.c.fresh, Shared: s.c.shared}
		for _, d := range s.Drivers {
			task.Drivers[d.Name] = d.Endpoint()
		}
		argument, err := json.Marshal(task)
		if err != nil {
			return a, fmt.Errorf("write the baseline's argument: %w", err)
		}
		p, err := testbed.StartProcess(ctx, testbed.ProcessOptions{
			Name: baselineName, Path: s.opts.Testbed, Args: []string{BaselineCommand, string(argument)},
			LogPath: s.file("baseline.log"), ReadyLine: baselineReady,
		})
		if err != nil {
			return a, err
		}
		a.add(p, "http://"+address)
		return a, nil
	}}
}
