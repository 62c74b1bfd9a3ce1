package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// podsCase measures the way from a Pod to node.status.volumesAttached. flags are those of kube-controller-manager.
func podsCase(name, with string, flags ...string) Case {
	return Case{
		Name: name, About: "10 drivers, 20 Pods each, all at once; kube-controller-manager " + with + ", API Priority and Fairness on",
		Drivers: 10, Nodes: 20, Volumes: 2500, Each: 20, Workers: 100,
		Rounds: 3, SidecarRounds: 1, fair: true, booked: true, turn: turnOfPods,
		prepare: func(ctx context.Context, s *stage) (err error) {
			if err := each(ctx, slices.Concat(s.warmUp, s.volumes), s.bindClaim); err != nil {
				return err
			}
			s.manager, err = s.Plane.StartControllerManager(ctx, s.file("kube-controller-manager.log"), flags...)
			return err
		},
	}
}

// bindClaim makes the claim of the volume and binds them.
func (s *stage) bindClaim(ctx context.Context, v volume) error {
	return s.Cluster.BindClaim(ctx, testbed.PersistentVolumeClaim{Name: v.claim(), PersistentVolume: v.name})
}

// pod returns the Pod of a volume. It is bound to the node of the volume from the beginning: there is no scheduler.
func (v volume) pod() testbed.Pod {
	return testbed.Pod{Name: v.name, Node: v.node, Claims: []string{v.claim()}}
}

// turnOfPods creates Pods all at once, deletes them, and measures the legs of the ways of their volumes.
func turnOfPods(ctx context.Context, s *stage, a *attacher) (figures Figures, err error) {
	nodes, err := testbed.WatchNodes(ctx, s.client(), s.clock.observeNode)
	if err != nil {
		return nil, err
	}
	defer nodes.Close()
	create := func(ctx context.Context, v volume) error { return s.Cluster.Create(ctx, v.pod()) }
	remove := func(ctx context.Context, v volume) error { return s.Cluster.Delete(ctx, v.pod()) }
	for _, volumes := range [][]volume{s.warmUp, s.volumes} {
		attaches, err := s.change(ctx, reported, volumes, create)
		if err != nil {
			return nil, err
		}
		if figures, err = attaches.podFigures(s.Drivers); err != nil {
			return nil, err
		}
		detaches, err := s.change(ctx, gone, volumes, remove)
		if err != nil {
			return nil, err
		}
		figures[PodDetachRate], figures[PodDetachP99] = detaches.perSecond(), detaches.percentile(99)
	}
	s.say("%s: %.1f Pods per second have their volumes; median after %s", a.name, figures[PodRate], duration(figures[PodP50]))
	return figures, nil
}

// podFigures returns the figures of Pods that were created all at once. The moment of the first call to the driver comes from the
// drivers' books.
func (t timing) podFigures(drivers []*testbed.Driver) (Figures, error) {
	f := Figures{PodRate: t.perSecond(), PodP50: t.percentile(50)}
	begun := map[string][]time.Time{}
	for _, d := range drivers {
		for _, call := range d.Backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "") {
			begun[call.Volume] = append(begun[call.Volume], call.Start)
		}
	}
	var legs [reported][]time.Duration
	var manager, whole time.Duration
	for _, named := range t.ways {
		w := named.way
		for _, at := range begun[named.name] { // the books have the calls of earlier bursts too
			if at.After(w[asked]) && (w[called].IsZero() || at.Before(w[called])) {
				w[called] = at
			}
		}
		if w[called].IsZero() {
			return nil, fmt.Errorf("the volume %s was attached without a call", named.name)
		}
		for i, leg := range w.legs() {
			legs[i] = append(legs[i], leg)
		}
		own := w.legs()
		manager += own[0] + own[reported-1]
		whole += w[reported].Sub(w[asked])
	}
	for i, p50 := range []Figure{PodRequestP50, PodDispatchP50, PodPublishP50, PodReportP50} {
		slices.Sort(legs[i])
		f[p50] = statistics.Percentile(legs[i], 50).Seconds()
	}
	f[ManagerShare] = float64(manager) / float64(whole)
	return f, nil
}

// legs returns the times from one moment to the next, until the volume is reported. Different watches see the moments, some late: a
// moment counts as not earlier than the one before it and not later than the last, so that the legs add up to the whole way.
func (w way) legs() (legs [reported]time.Duration) {
	for i := range reported {
		if w[i+1].Before(w[i]) {
			w[i+1] = w[i]
		}
		if w[i+1].After(w[reported]) {
			w[i+1] = w[reported]
		}
		legs[i] = w[i+1].Sub(w[i])
	}
	return legs
}
