package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Run measures the cases and blocks until everything has been stopped. With an error the report
// has the cases that were measured. An error of Options.Measured does not end it.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.check(); err != nil {
		return Report{}, err
	}
	cases, err := o.chosen()
	if err != nil {
		return Report{}, err
	}
	if o.Profiles != "" {
		if err := os.MkdirAll(o.Profiles, 0o755); err != nil {
			return Report{}, fmt.Errorf("make folder of profiles: %w", err)
		}
	}
	if o.Rounds > 0 {
		for i := range cases {
			cases[i].Rounds = o.Rounds
		}
	}
	return measureAll(ctx, o, cases, measure)
}

// measureAll measures the cases one after the other, each with measure, as Run does.
func measureAll(ctx context.Context, o Options, cases []Case, measure func(context.Context, Options, Case) (Result, error)) (Report, error) {
	var report Report
	var failed []error // a case that fails, such as one that needs root, keeps no other case from being measured
	for i, c := range cases {
		o.after = cases[i+1:]
		fmt.Fprintf(o.Progress, "Case %d of %d, %s: %s\n", i+1, len(cases), c.Name, c.About)
		result, err := measure(ctx, o, c)
		if err != nil {
			failed = append(failed, fmt.Errorf("bench %s: %w", c.Name, err))
			if ctx.Err() != nil {
				break
			}
			continue
		}
		report.Cases = append(report.Cases, result)
		if o.Measured != nil {
			failed = append(failed, o.Measured(report))
		}
	}
	return report, errors.Join(failed...)
}

// measure measures one case.
func measure(ctx context.Context, o Options, c Case) (result Result, err error) {
	began := time.Now()
	s, err := setStage(ctx, o, c)
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	if err != nil {
		return Result{}, err
	}
	result = Result{
		Name: c.Name, About: c.About, Date: began.UTC().Truncate(time.Second), Machine: thisMachine(), Command: o.Command,
		Rounds: c.Rounds, Workers: c.Workers,
	}
	if o.Sidecar != "" && len(c.Sidecars) > 0 && c.sidecarsEvery() > 1 {
		result.SidecarRounds = (c.Rounds + c.sidecarsEvery() - 1) / c.sidecarsEvery()
	}
	if c.prepare != nil {
		if err := c.prepare(ctx, s); err != nil {
			return Result{}, fmt.Errorf("prepare: %w", err)
		}
	}
	for round := range c.Rounds {
		competitors := s.competitors(round)
		for i, competitor := range competitors {
			s.narrator.turn(round, c.Rounds, i, len(competitors), competitor.name)
			turn := time.Now()
			speed := machineSpeed(ctx)
			figures, err := s.takeTurn(ctx, competitor)
			if err != nil {
				return Result{}, fmt.Errorf("%s: %w", competitor.name, err)
			}
			figures[Speed] = (speed + machineSpeed(ctx)) / 2
			figures[TurnTook] = time.Since(turn).Seconds()
			s.narrator.turnEnded(time.Since(turn))
			result.Samples = append(result.Samples, Sample{Competitor: competitor.name, Round: round + 1, Figures: figures})
		}
	}
	result.Series, result.Stacks = mergedSeries(s.series), mergedStacks(s.stacks)
	result.judge(c.Targets)
	result.Took = time.Since(began).Round(time.Second).String()
	return result, nil
}

// takeTurn runs a competitor once.
func (s *stage) takeTurn(ctx context.Context, c competitor) (figures Figures, err error) {
	if s.c.fresh {
		if err := each(ctx, s.volumes, func(ctx context.Context, v volume) error { return v.takeFinalizers(ctx, s.client()) }); err != nil {
			return nil, err
		}
	}
	if s.c.replicas {
		if err := s.dropLeases(ctx); err != nil {
			return nil, err
		}
	}
	var was before
	if was.requests, err = countRequests(ctx, s.Plane); err != nil {
		return nil, err
	}
	was.calls = countCalls(s.Drivers)
	began := time.Now()
	a, err := c.start(ctx, s)
	defer func() { err = errors.Join(err, a.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return nil, err
	}
	a.ready, a.before, a.bursts = time.Since(began), was, s.c.Bursts
	if c.bursts > 0 {
		a.bursts = min(a.bursts, c.bursts)
	}
	return s.c.turn(ctx, s, a)
}

// competitors returns those of a round, which counts from 0, in the order of their turns.
func (s *stage) competitors(round int) []competitor {
	always, sidecars := []competitor{hubCompetitor()}, []competitor(nil)
	if !s.c.alone {
		always = append(always, baselineCompetitor())
	}
	if s.takesPart(sidecarName) {
		sidecars = append(sidecars, sidecarCompetitor(sidecarName, nil))
	}
	if s.takesPart(tunedSidecarName) {
		sidecars = append(sidecars, sidecarCompetitor(tunedSidecarName, tuned))
	}
	return s.c.order(round, always, sidecars)
}

// takesPart reports whether csi-attacher takes part in this way.
func (s *stage) takesPart(sidecar string) bool {
	return s.opts.Sidecar != "" && slices.Contains(s.c.Sidecars, sidecar)
}
