package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
)

const (
	// burstsEach is the number of bursts beside the tenant, and then without it.
	burstsEach = 4
	// fewVolumes are so few that csi-attacher attaches them within seconds with its default flags.
	fewVolumes = 100
	// lostLease is in the log of the hub once for each lease that it loses.
	lostLease = "Lease lost"
)

// prepareTenant makes the ServiceAccounts of all competitors, and the noisy tenant.
func prepareTenant(ctx context.Context, s *stage) (err error) {
	if err = s.applyBase(ctx); err == nil {
		s.tenant, err = newTenant(ctx, s)
	}
	return err
}

// turnOfTenant measures how long volumes take to attach, by turns with and without a noisy tenant, and then
// a burst beside the tenant without the FlowSchemas of the hub. csi-attacher has no FlowSchema, so only that is measured of it.
func turnOfTenant(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	figures, err := Figures{}, error(nil)
	if a.sidecars {
		_, err = s.burst(ctx, a, s.warmUp)
	} else {
		figures, err = turnBesideTenant(ctx, s, a)
	}
	if err != nil {
		return nil, err
	}
	some := s.volumes[:min(fewVolumes, len(s.volumes))] // of all drivers
	quiet, err := s.burst(ctx, a, some)
	if err != nil {
		return nil, err
	}
	if err := s.Plane.DeleteInstallation(ctx, flowSchemas); err != nil {
		return nil, err
	}
	var t timing
	n, err := s.whileSaturated(ctx, a, func(ctx context.Context) (err error) {
		t, err = s.change(ctx, "attached", isAttached, some, s.ask)
		return err
	})
	if err := errors.Join(err, s.Plane.ApplyInstallation(ctx, flowSchemas)); err != nil {
		return nil, err
	}
	figures[FewQuietP99], figures[UnprotectedP99] = quiet.attach.percentile(99), t.percentile(99)
	if !a.sidecars { // which run without leases
		figures[UnprotectedLeasesLost] = float64(n.leasesLost)
	}
	s.say("%s: attach p99 of %d volumes %s, beside the noisy tenant without FlowSchemas %s, %d leases lost", a.name, len(some),
		duration(figures[FewQuietP99]), duration(figures[UnprotectedP99]), n.leasesLost)
	return figures, a.whileRuns(ctx, func(ctx context.Context) error {
		_, err := s.detach(ctx, some)
		return err
	})
}

// turnBesideTenant measures the first part of turnOfTenant.
func turnBesideTenant(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	var counted []Figures
	lost := 0
	for i := range a.bursts {
		f := Figures{}
		for j := range 2 {
			if (i+j)%2 == 0 { // by turns the first one
				p99, err := s.attachP99(ctx, a)
				if err != nil {
					return nil, err
				}
				f[QuietP99] = p99
				continue
			}
			n, err := s.whileSaturated(ctx, a, func(ctx context.Context) (err error) {
				f[TenantP99], err = s.attachP99(ctx, a)
				return err
			})
			if err != nil {
				return nil, err
			}
			f[TenantWaiting] = float64(n.waiting)
			lost += n.leasesLost
		}
		f[TenantRatio] = f[TenantP99] / f[QuietP99]
		counted = append(counted, f)
		s.say("%s: attach p99 %s, beside the noisy tenant %s; %d leases lost", a.name, duration(f[QuietP99]), duration(f[TenantP99]), lost)
	}
	figures := medians(counted)
	figures[LeasesLost] = float64(lost)
	return figures, nil
}

// attachP99 returns the median of several bursts: one burst of a busy machine says little.
func (s *stage) attachP99(ctx context.Context, a *attacher) (float64, error) {
	var p99s []float64
	for range burstsEach {
		b, err := s.burst(ctx, a, s.volumes)
		if err != nil {
			return 0, err
		}
		p99s = append(p99s, b.attach.percentile(99))
	}
	return statistics.Median(p99s), nil
}

// saturation is a time in which the noisy tenant saturates its priority level.
type saturation struct {
	leasesLost int // by the hub
	waiting    int // requests of the tenant in queues, at the beginning
}

// whileSaturated acts while the tenant saturates its priority level, which is at least for the time that the case says.
func (s *stage) whileSaturated(ctx context.Context, a *attacher, act func(context.Context) error) (saturation, error) {
	before, err := leasesLost(a)
	if err != nil {
		return saturation{}, err
	}
	enough := time.After(s.c.tenantFor)
	stop, waiting, err := s.tenant.saturate(ctx)
	if err != nil {
		return saturation{}, err
	}
	err = a.whileRuns(ctx, func(ctx context.Context) error {
		if err := act(ctx); err != nil {
			return err
		}
		select {
		case <-enough:
		case <-ctx.Done():
		}
		return context.Cause(ctx)
	})
	if err := errors.Join(err, stop()); err != nil {
		return saturation{}, err
	}
	after, err := leasesLost(a)
	return saturation{leasesLost: after - before, waiting: waiting}, err
}

// leasesLost counts the leases that the hub has lost, by its log.
func leasesLost(a *attacher) (int, error) {
	count := 0
	for _, p := range a.processes {
		log, err := os.ReadFile(p.LogPath())
		if err != nil {
			return 0, fmt.Errorf("read log of the hub: %w", err)
		}
		count += bytes.Count(log, []byte(lostLease))
	}
	return count, nil
}
