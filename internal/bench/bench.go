package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Run measures and blocks until everything has been stopped again. With an error the
// report has the cases that were measured before it.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.check(); err != nil {
		return Report{}, err
	}
	cases, err := o.chosen()
	if err != nil {
		return Report{}, err
	}
	report := Report{Date: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), Command: o.Command}
	for _, c := range cases {
		if o.Rounds > 0 {
			c.Rounds = o.Rounds
		}
		result, err := measure(ctx, o, c)
		if err != nil {
			return report, fmt.Errorf("bench %s: %w", c.Name, err)
		}
		report.Cases = append(report.Cases, result)
	}
	return report, nil
}

// measure runs one case.
func measure(ctx context.Context, o Options, c Case) (result Result, err error) {
	began := time.Now()
	s, err := setStage(ctx, o, c)
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return Result{}, err
	}
	result = Result{Name: c.Name, About: c.About, Rounds: c.Rounds, Workers: c.Workers}
	for round := range c.Rounds {
		for _, competitor := range s.competitors() {
			s.say("round %d of %d: %s", round+1, c.Rounds, competitor.name)
			figures, err := s.turn(ctx, competitor)
			if err != nil {
				return Result{}, fmt.Errorf("%s: %w", competitor.name, err)
			}
			result.Samples = append(result.Samples, Sample{Competitor: competitor.name, Round: round + 1, Figures: figures})
		}
	}
	result.judge(c.Targets)
	result.Took = time.Since(began).Round(time.Second).String()
	return result, nil
}

// competitors are those of the case, in the order of their turns.
func (s *stage) competitors() []competitor {
	all := []competitor{hubCompetitor(), floorCompetitor()}
	if s.opts.Sidecar == "" {
		return all
	}
	if slices.Contains(s.c.Sidecars, sidecarName) {
		all = append(all, sidecarCompetitor(sidecarName, nil))
	}
	if slices.Contains(s.c.Sidecars, tunedSidecarName) {
		all = append(all, sidecarCompetitor(tunedSidecarName, tuned))
	}
	return all
}
