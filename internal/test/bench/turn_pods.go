package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// steadyPods are created one after the other, one each steadyEvery: fewer than kube-controller-manager makes requests for
	// with its default limits.
	steadyPods  = 25
	steadyEvery = 200 * time.Millisecond
)

// managerTuned are flags of kube-controller-manager that lift the limits of its client.
var managerTuned = []string{"--kube-api-qps=1000", "--kube-api-burst=1000"}

// podsCase measures the way from a Pod to node.status.volumesAttached. flags are those of kube-controller-manager.
func podsCase(name, with string, flags []string) Case {
	return Case{
		Name: name, About: "10 drivers, 20 Pods each, all at once, then 5 Pods per second; kube-controller-manager " + with + ", API Priority and Fairness on",
		Drivers: 10, Nodes: 20, Volumes: 2500, Each: 20, Latency: latency, Workers: 100,
		Bursts: 1, Rounds: 3, SidecarRounds: 1, Sidecars: []string{sidecarName, tunedSidecarName},
		fair: true, booked: true, turn: turnOfPods,
		prepare: func(ctx context.Context, s *stage) error { return preparePods(ctx, s, flags) },
	}
}

// preparePods binds all claims and starts kube-controller-manager.
func preparePods(ctx context.Context, s *stage, flags []string) error {
	if err := s.applyBase(ctx); err != nil {
		return err
	}
	if err := each(ctx, slices.Concat(s.warmUp, s.volumes), s.bindClaim); err != nil {
		return err
	}
	var err error
	s.manager, err = s.Plane.StartAttachDetach(ctx, testbed.AttachDetachOptions{Args: flags, LogPath: s.file("kube-controller-manager.log")})
	return err
}

// turnOfPods creates Pods, all at once and then steadily, and measures the legs of the ways of their volumes.
func turnOfPods(ctx context.Context, s *stage, a *attacher) (figures Figures, err error) {
	t := &timeline{}
	t.beginAttach(nil)
	attachments, err := testbed.WatchVolumeAttachments(ctx, s.client(), t.observeAttachment)
	if err != nil {
		return nil, err
	}
	defer attachments.Close()
	nodes, err := testbed.WatchNodes(ctx, s.client(), t.observeNode)
	if err != nil {
		return nil, err
	}
	defer nodes.Close()
	processes := append(slices.Clone(a.processes), s.manager)
	err = testbed.WhileRunning(ctx, processes, func(ctx context.Context) error {
		if _, err := s.podBurst(ctx, t, s.warmUp, 0); err != nil {
			return err
		}
		burst, err := s.podBurst(ctx, t, s.volumes, 0)
		if err != nil {
			return err
		}
		steady, err := s.podBurst(ctx, t, s.volumes[:min(steadyPods, len(s.volumes))], steadyEvery)
		if err != nil {
			return err
		}
		figures = burst.figures()
		figures[SteadyPodP50] = steady.attached.percentile(50, journey.whole)
		figures[SteadyPodP99] = steady.attached.percentile(99, journey.whole)
		figures[SteadyManagerShare] = steady.attached.managerShare()
		s.stacks = append(s.stacks, burst.attached.stack(fmt.Sprintf("%d Pods at once", len(s.volumes)), a.name),
			steady.attached.stack("5 Pods per second", a.name))
		s.say("%s: %.1f Pods per second have their volumes; median after %s, at 5 per second after %s", a.name,
			figures[PodRate], duration(figures[PodP50]), duration(figures[SteadyPodP50]))
		return nil
	})
	return figures, err
}

// podBurst is the measurement of creating Pods and of deleting them.
type podBurst struct {
	attached      journeys
	attachElapsed time.Duration   // from the first Pod until the last volume is reported
	detached      []time.Duration // from the deletion of the Pod until its VolumeAttachment is gone; sorted
	detachElapsed time.Duration
}

// podBurst creates the Pods of volumes, one each interval or all at once (0), deletes them, and blocks until their volumes are
// detached.
func (s *stage) podBurst(ctx context.Context, t *timeline, volumes []volume, interval time.Duration) (b podBurst, err error) {
	t.beginAttach(volumes)
	if b.attachElapsed, err = s.changePods(ctx, t, "reported", volumes, func(ctx context.Context, v volume) error {
		t.bound(v)
		return s.Cluster.Create(ctx, v.pod())
	}, interval); err != nil {
		return b, err
	}
	if b.attached, err = t.attached(s.Drivers); err != nil {
		return b, err
	}
	t.beginDetach(volumes)
	if b.detachElapsed, err = s.changePods(ctx, t, "detached", volumes, func(ctx context.Context, v volume) error {
		t.deleted(v)
		return s.Cluster.Delete(ctx, v.pod())
	}, 0); err != nil {
		return b, err
	}
	b.detached = t.detached()
	slices.Sort(b.detached)
	return b, nil
}

// changePods changes the Pods of volumes and blocks until the timeline says that all is done. It returns how long that took.
func (s *stage) changePods(ctx context.Context, t *timeline, what string, volumes []volume, change func(context.Context, volume) error, interval time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseFor, fmt.Errorf("not %s after %v", what, phaseFor))
	defer cancel()
	began := time.Now()
	if interval == 0 {
		if err := each(ctx, volumes, change); err != nil {
			return 0, err
		}
	} else {
		for i, v := range volumes {
			pause(ctx, time.Until(began.Add(time.Duration(i)*interval)))
			if err := change(ctx, v); err != nil {
				return 0, err
			}
		}
	}
	err := t.wait(ctx, what)
	return time.Since(began), err
}

// figures returns the figures of Pods that were created all at once.
func (b podBurst) figures() Figures {
	f := Figures{
		PodRate:       float64(len(b.attached)) / b.attachElapsed.Seconds(),
		PodP50:        b.attached.percentile(50, journey.whole),
		PodP99:        b.attached.percentile(99, journey.whole),
		ManagerShare:  b.attached.managerShare(),
		PodDetachRate: float64(len(b.detached)) / b.detachElapsed.Seconds(),
		PodDetachP50:  statistics.Percentile(b.detached, 50).Seconds(),
		PodDetachP99:  statistics.Percentile(b.detached, 99).Seconds(),
	}
	for l, figures := range legFigures {
		part := func(j journey) time.Duration { return j[l] }
		f[figures.p50], f[figures.p99] = b.attached.percentile(50, part), b.attached.percentile(99, part)
	}
	return f
}

// legFigures are the figures of each leg.
var legFigures = [legs]struct{ p50, p99 Figure }{
	{PodRequestP50, PodRequestP99}, {PodDispatchP50, PodDispatchP99}, {PodPublishP50, PodPublishP99}, {PodReportP50, PodReportP99},
}
