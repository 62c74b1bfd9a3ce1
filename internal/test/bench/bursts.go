package main

import (
	"context"
)

// phase is the measurement of attaching, or detaching, all volumes of a burst.
type phase struct {
	timing
	work
	plane float64 // CPU seconds of the control plane
}

// perVolume returns a count divided by the volumes of the phase.
func (p phase) perVolume(n int) float64 { return float64(n) / float64(len(p.took)) }

// counted counts what act takes, which attaches or detaches volumes.
func (s *stage) counted(ctx context.Context, act func(context.Context, []volume) (timing, error), volumes []volume) (p phase, err error) {
	before, err := s.count(ctx)
	if err != nil {
		return p, err
	}
	// Counting requests costs the API server much, so that is left out.
	took, err := planeCPU(s.Plane.Process().PID())
	if err != nil {
		return p, err
	}
	if p.timing, err = act(ctx, volumes); err != nil {
		return p, err
	}
	if p.plane, err = planeCPU(s.Plane.Process().PID()); err != nil {
		return p, err
	}
	p.plane -= took
	after, err := s.count(ctx)
	if err == nil {
		p.work = after.since(before)
	}
	return p, err
}

// burst attaches all volumes at once, and detaches them.
func (s *stage) burst(ctx context.Context, a *attacher, volumes []volume) (Figures, error) {
	attaches, err := s.counted(ctx, s.attach, volumes)
	if err != nil {
		return nil, err
	}
	full := a.usage()
	detaches, err := s.counted(ctx, s.detach, volumes)
	if err != nil {
		return nil, err
	}
	figures := burstFigures(attaches, detaches)
	figures[ResidentAttached] = full.resident
	return figures, nil
}

func burstFigures(attaches, detaches phase) Figures {
	operations := float64(len(attaches.took) + len(detaches.took))
	return Figures{
		AttachRate: attaches.perSecond(), DetachRate: detaches.perSecond(),
		AttachP50: attaches.percentile(50), AttachP99: attaches.percentile(99), DetachP99: detaches.percentile(99),
		AttachWrites: attaches.perVolume(attaches.writes), DetachWrites: detaches.perVolume(detaches.writes),
		AttachCalls: attaches.perVolume(attaches.all()), DetachCalls: detaches.perVolume(detaches.all()),
		Reads:    float64(attaches.reads+detaches.reads) / operations,
		PlaneCPU: (attaches.plane + detaches.plane) * 1000 / operations,
	}
}

// turnOfBursts measures bursts after a warm-up, which makes connections and fills caches.
func turnOfBursts(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	proxy := 0.0
	for _, p := range a.proxies {
		proxy = max(proxy, processUsage(p.PID()).resident)
	}
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	idle := a.usage()
	var counted []Figures
	bursts := s.c.Bursts
	if a.sidecars {
		bursts = 1
	}
	for range bursts {
		f, err := s.burst(ctx, a, s.volumes)
		if err != nil {
			return nil, err
		}
		counted = append(counted, f)
		s.say("%s: %.0f attaches and %.0f detaches per second", a.name, f[AttachRate], f[DetachRate])
	}
	end := a.usage()
	figures := medians(counted)
	figures[CPU] = (end.cpu - idle.cpu) * 1000 / float64(2*len(s.volumes)*bursts)
	figures[ResidentIdle], figures[ResidentEnd], figures[ResidentPeak] = idle.resident, end.resident, end.peak
	if proxy > 0 {
		figures[ResidentProxy] = proxy
	}
	return figures, nil
}
