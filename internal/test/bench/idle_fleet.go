package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// fleetSettles is how long a new fleet is left alone: its first renewals and probes have come by then.
	fleetSettles = 6 * time.Second
	// fleetFor is a whole number of retry periods (5 s) of leases.
	fleetFor = 20 * time.Second
	// fetches is how often each page of HTTP is fetched.
	fetches = 5
	// burstFor is the bucket of LeaseBurst.
	burstFor = 100 * time.Millisecond
)

// measureFleet returns what a hub without work costs beside its memory: renewals of leases, CPU time of the hub
// and of the control plane.
func measureFleet(ctx context.Context, s *stage, a *attacher) (figures Figures, err error) {
	figures = Figures{FleetReady: a.ready.Seconds()}
	u, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	figures[ReadyCPU] = u.cpu
	err = a.whileRuns(ctx, func(ctx context.Context) error {
		if pause(ctx, fleetSettles); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return figures.addLeases(ctx, s, a)
	})
	return figures, err
}

// addLeases watches an idle hub for fleetFor. The ages and bursts of renewals are by the renewTime of the Leases: the
// clock of the hub, which is that of this machine.
func (f Figures) addLeases(ctx context.Context, s *stage, a *attacher) error {
	requests, err := s.Plane.Requests(ctx)
	if err != nil {
		return err
	}
	hub, plane, err := cpuOf(a, s)
	if err != nil {
		return err
	}
	began := time.Now()
	for time.Since(began) < fleetFor {
		if pause(ctx, fleetFor/4); ctx.Err() != nil {
			return context.Cause(ctx)
		}
		age, burst, err := renewals(ctx, s)
		if err != nil {
			return err
		}
		f[LeaseAge], f[LeaseBurst] = max(f[LeaseAge], age.Seconds()), max(f[LeaseBurst], float64(burst))
	}
	hubAfter, planeAfter, err := cpuOf(a, s)
	if err != nil {
		return err
	}
	elapsed := time.Since(began)
	after, err := s.Plane.Requests(ctx)
	if err != nil {
		return err
	}
	writes := after.Since(requests).Sum(func(k testbed.RequestKey) bool { return k.Resource == "leases" && testbed.IsWrite(k) })
	f[LeaseWrites] = float64(writes) / elapsed.Seconds()
	f[IdleCPU] = (hubAfter - hub) / elapsed.Minutes()
	f[IdlePlaneCPU] = (planeAfter - plane) / elapsed.Minutes()
	return nil
}

// renewals returns how long ago the lease was renewed that was renewed first, and how many leases were renewed at
// most within burstFor.
func renewals(ctx context.Context, s *stage) (oldest time.Duration, burst int, err error) {
	now := time.Now()
	leases, err := driverLeases(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	buckets := map[int64]int{}
	for _, l := range leases {
		oldest = max(oldest, now.Sub(l.Spec.RenewTime.Time))
		bucket := l.Spec.RenewTime.UnixMilli() / burstFor.Milliseconds()
		buckets[bucket]++
		burst = max(burst, buckets[bucket])
	}
	return oldest, burst, nil
}

// driverLeases returns the leases of drivers that somebody holds.
func driverLeases(ctx context.Context, s *stage) ([]coordinationv1.Lease, error) {
	leases, err := s.client().CoordinationV1().Leases("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	names := sets.New[string]()
	for _, name := range s.names {
		names.Insert(registry.LeaseName(name))
	}
	return slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool {
		// The API server has leases of its own, and a hub that was stopped has left some without a holder.
		return !names.Has(l.Name) || l.Spec.RenewTime == nil || ptr.Deref(l.Spec.HolderIdentity, "") == ""
	}), nil
}

// cpuOf returns the CPU seconds of all processes of an attacher, and of the control plane.
func cpuOf(a *attacher, s *stage) (hub, controlPlane float64, err error) {
	for _, p := range a.processes {
		u, err := processUsage(p.PID())
		if err != nil {
			return 0, 0, err
		}
		hub += u.cpu
	}
	plane, err := readPlaneCPU(s.Plane.Process().PID())
	return hub, plane.server + plane.etcd, err
}

// addPages fetches what the hub serves. Each time is a median.
func (f Figures) addPages(ctx context.Context, s *stage, url string) error {
	for _, page := range []struct {
		path       string
		took, size Figure
	}{
		{"/", PageSeconds, PageBytes},
		{"/api/v1/drivers", APISeconds, APIBytes},
		{"/metrics", MetricsSeconds, MetricsBytes},
	} {
		var times []float64
		for range fetches {
			began := time.Now()
			err := testbed.Get(ctx, url+page.path, func(body io.Reader) error {
				text, err := io.ReadAll(body)
				f[page.size] = float64(len(text))
				if page.path == "/metrics" {
					f[MetricsSeries] = float64(seriesIn(text))
				}
				return err
			})
			if err != nil {
				return err
			}
			times = append(times, time.Since(began).Seconds())
		}
		f[page.took] = statistics.Median(times)
	}
	began := time.Now()
	if out, err := exec.CommandContext(ctx, s.opts.Hub, "status", "--server", url).CombinedOutput(); err != nil {
		return fmt.Errorf("csi-attach-hub status: %w: %s", err, out)
	}
	f[StatusSeconds] = time.Since(began).Seconds()
	return nil
}

// seriesIn returns how many series a text in the Prometheus format has.
func seriesIn(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte("#")) {
			n++
		}
	}
	return n
}
