package bench

import (
	"context"
	"math"
)

// turnOfBursts is a warm-up and then bursts.
func turnOfBursts(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	// Connections and caches are there when a volume of each driver has been attached.
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	idle, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	figures := Figures{}
	if s.c.unguarded {
		b, err := s.burst(ctx, a, s.volumes)
		if err != nil {
			return nil, err
		}
		figures[FirstAttachRate] = b.attach.perSecond()
		figures[FirstWrites] = b.attach.perOperation(b.attach.writes)
	}
	began, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	var counted []Figures
	operations := 0
	for range a.bursts {
		b, err := s.burst(ctx, a, s.volumes)
		if err != nil {
			return nil, err
		}
		counted = append(counted, b.figures())
		operations += 2 * len(s.volumes)
		s.say("%s: %.0f attaches and %.0f detaches per second", a.name, b.attach.perSecond(), b.detach.perSecond())
	}
	end, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	for f, v := range medians(counted) {
		figures[f] = v
	}
	figures[CPU] = (end.cpu - began.cpu) / float64(operations) * 1000
	figures.add(ResidentIdle, idle.resident)
	figures.add(ResidentEnd, end.resident)
	figures.add(ResidentPeak, end.peak)
	figures.add(HeapIdle, idle.heap)
	figures.add(HeapEnd, end.heap)
	figures.add(GoroutinesIdle, idle.goroutines)
	figures.add(GoroutinesEnd, end.goroutines)
	return figures, nil
}

// figures are those of one burst.
func (b burst) figures() Figures {
	return Figures{
		AttachRate: b.attach.perSecond(), DetachRate: b.detach.perSecond(),
		AttachP50: b.attach.percentile(50), AttachP99: b.attach.percentile(99), AttachMax: b.attach.percentile(100),
		DetachP50: b.detach.percentile(50), DetachP99: b.detach.percentile(99), DetachMax: b.detach.percentile(100),
		AttachWrites:     b.attach.perOperation(b.attach.writes),
		DetachWrites:     b.detach.perOperation(b.detach.writes),
		Reads:            float64(b.attach.reads+b.detach.reads) / float64(len(b.attach.took)+len(b.detach.took)),
		OtherWrites:      float64(b.attach.others + b.detach.others),
		AttachCalls:      b.attach.perOperation(b.attach.publish),
		DetachCalls:      b.detach.perOperation(b.detach.unpublish),
		ResidentAttached: b.full.resident,
	}
}

// add takes a value that is known: it is not negative.
func (f Figures) add(figure Figure, value float64) {
	if value >= 0 && !math.IsNaN(value) {
		f[figure] = value
	}
}
