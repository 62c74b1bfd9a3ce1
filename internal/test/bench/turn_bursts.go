package main

import "context"

// turnOfBursts measures bursts after a warm-up.
func turnOfBursts(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	// Attaching a volume of each driver makes connections and fills caches.
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	idle, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	var first burst
	if s.c.fresh {
		if first, err = s.burst(ctx, a, s.volumes); err != nil {
			return nil, err
		}
	}
	began, err := a.quietUsage()
	if err != nil {
		return nil, err
	}
	var counted []Figures
	var bursts []burst
	var end usage // before the heap profile, which collects garbage
	err = s.profiled(ctx, a, func() (err error) {
		for range a.bursts {
			b, err := s.burst(ctx, a, s.volumes)
			if err != nil {
				return err
			}
			counted, bursts = append(counted, b.figures()), append(bursts, b)
			s.say("%s: %.0f attaches and %.0f detaches per second", a.name, b.attach.perSecond(), b.detach.perSecond())
		}
		end, err = a.usage(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.series = append(s.series, latencies(a.name, bursts)...)
	figures := medians(counted)
	if s.c.fresh {
		figures[FirstAttachRate] = first.attach.perSecond()
		figures[FirstWrites] = first.attach.perOperation(first.attach.writes)
	}
	figures[CPU] = (end.cpu - began.cpu) * 1000 / float64(2*len(s.volumes)*len(counted))
	figures.addIdle(idle)
	figures.addEnd(end)
	return figures, nil
}

// figures returns the figures of one burst.
func (b burst) figures() Figures {
	operations := float64(len(b.attach.took) + len(b.detach.took))
	server, etcd := b.attach.plane.server+b.detach.plane.server, b.attach.plane.etcd+b.detach.plane.etcd
	return Figures{
		AttachRate: b.attach.perSecond(), DetachRate: b.detach.perSecond(),
		AttachP50: b.attach.percentile(50), AttachP99: b.attach.percentile(99), AttachMax: b.attach.percentile(100),
		DetachP50: b.detach.percentile(50), DetachP99: b.detach.percentile(99), DetachMax: b.detach.percentile(100),
		AttachWrites:     b.attach.perOperation(b.attach.writes),
		DetachWrites:     b.detach.perOperation(b.detach.writes),
		Reads:            float64(b.attach.reads+b.detach.reads) / operations,
		OtherWrites:      float64(b.attach.others + b.detach.others),
		AttachCalls:      b.attach.perOperation(b.attach.all()),
		DetachCalls:      b.detach.perOperation(b.detach.all()),
		PlaneCPU:         (server + etcd) * 1000 / operations,
		ServerCPU:        server * 1000 / operations,
		ResidentAttached: b.full.resident,
	}
}
