package testbed

import "context"

// PriorityLevel has the requests of one priority level of API Priority and Fairness.
type PriorityLevel struct {
	Waiting   int // in a queue
	Executing int
	Rejected  int // since the start of the API server
}

// PriorityLevel returns the requests of a priority level at this moment.
func (cp *ControlPlane) PriorityLevel(ctx context.Context, name string) (PriorityLevel, error) {
	body, err := cp.metrics(ctx)
	if err != nil {
		return PriorityLevel{}, err
	}
	var level PriorityLevel
	for metric, sum := range map[string]*int{
		"apiserver_flowcontrol_current_inqueue_requests":   &level.Waiting,
		"apiserver_flowcontrol_current_executing_requests": &level.Executing,
		"apiserver_flowcontrol_rejected_requests_total":    &level.Rejected,
	} {
		samples, err := parseSamples(body, metric)
		if err != nil {
			return PriorityLevel{}, err
		}
		for _, s := range samples {
			if labelsOf(s)["priority_level"] == name {
				*sum += int(value(s))
			}
		}
	}
	return level, nil
}
