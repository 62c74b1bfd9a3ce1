package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// scale is the case of a large cluster. Its objects are made in steps, and a hub that starts at each step shows what they
// cost.
type scale struct {
	nodes    int
	attached int     // volumes of each driver that stay attached
	burst    int     // further volumes of each driver
	prepared Figures // what prepare has measured
}

// scaleCase returns the case of 100,000 attached volumes.
func scaleCase() Case {
	return (&scale{nodes: 5000, attached: 10_000, burst: 500}).as("scale",
		"100,000 volumes of 10 drivers, all attached, on 5,000 nodes; then 20 volumes each, one after the other; 5,000 at once; a restart of the API server; takeovers")
}

func (c *scale) as(name, about string) Case {
	return Case{
		Name: name, About: about, Drivers: 10, Nodes: 1, Latency: latency, Workers: 100,
		Rounds: 1, alone: true, booked: true, prepare: c.prepare, turn: c.turn,
		Targets: []Target{
			AtMost(Ready, 12), Exactly(StartCalls, 0), Exactly(StartWrites, 0), AtMost(ResidentIdle, 300e6), AtMost(DispatchP99, 0.015),
			Exactly(RelistCalls, 0), Exactly(RelistWrites, 0), Exactly(TakeoverLed, 10), Exactly(TakeoverCalls, 0), Exactly(TakeoverWrites, 0),
		},
	}
}

// steps are the parts of all objects of a kind after which a hub is measured.
var steps = []int{4, 2, 1}

// prepare makes the objects, and measures hubs between the steps.
func (c *scale) prepare(ctx context.Context, s *stage) error {
	c.prepared = Figures{}
	before, err := c.measure(ctx, s)
	if err != nil {
		return err
	}
	if err := c.makeNodes(ctx, s); err != nil {
		return err
	}
	after, err := c.measure(ctx, s)
	if err != nil {
		return err
	}
	c.prepared[ResidentPerNode] = (after.resident - before.resident) / float64(c.nodes-1)
	volumes := spread("pv", s.names, s.Nodes, c.attached)
	create := func(ctx context.Context, v volume) error { return v.create(ctx, s.client(), true) }
	if c.prepared[ResidentPerVolume], err = c.grow(ctx, s, "PersistentVolume", volumes, after, create); err != nil {
		return err
	}
	if after, err = c.measure(ctx, s); err != nil {
		return err
	}
	drivers := map[string]*testbed.Driver{}
	for _, d := range s.Drivers {
		drivers[d.Name] = d
	}
	attached := func(ctx context.Context, v volume) error { return v.createAttached(ctx, s, drivers[v.driver]) }
	if c.prepared[ResidentPerAttachment], err = c.grow(ctx, s, "VolumeAttachment", volumes, after, attached); err != nil {
		return err
	}
	if err := c.compareLists(ctx, s); err != nil {
		return err
	}
	s.volumes = spread("burst", s.names, s.Nodes, c.burst)
	return each(ctx, append(spread("other", s.names, s.Nodes, dispatches), s.volumes...), create)
}

// makeNodes makes all nodes but the first, which the stage has.
func (c *scale) makeNodes(ctx context.Context, s *stage) error {
	var objects []testbed.Object
	for i := 1; i < c.nodes; i++ {
		name := fmt.Sprintf("node-%05d", i)
		s.Nodes = append(s.Nodes, name)
		objects = append(objects, testbed.Node{Name: name}, s.CSINode(name))
	}
	return s.Cluster.Create(ctx, objects...)
}

// grow makes an object for each volume, and returns the bytes of memory of each: the slope of a line through the steps.
func (c *scale) grow(ctx context.Context, s *stage, kind string, volumes []volume, at started, create func(context.Context, volume) error) (float64, error) {
	resident := []Point{{0, at.resident / 1e6}}
	heap := []Point{{0, at.heap / 1e6}}
	began, made := time.Now(), 0
	for _, part := range steps {
		some := volumes[made : len(volumes)/part]
		if err := each(ctx, some, create); err != nil {
			return 0, err
		}
		made += len(some)
		s.say("made %d of %d %ss in %.0f s", made, len(volumes), kind, time.Since(began).Seconds())
		u, err := c.measure(ctx, s)
		if err != nil {
			return 0, err
		}
		resident = append(resident, Point{float64(made), u.resident / 1e6})
		heap = append(heap, Point{float64(made), u.heap / 1e6})
	}
	unit := &Fit{Unit: "kB per " + kind, Factor: 1000}
	line := Series{Chart: "Memory of the hub", X: "objects", Y: "MB", Fit: unit}
	line.Name, line.Points = kind+"s, memory (RSS)", resident
	s.series = append(s.series, line)
	line.Name, line.Points = kind+"s, live heap", heap
	s.series = append(s.series, line)
	_, slope := fit(resident)
	return slope * 1e6, nil
}

// withoutStreams is an environment variable with which client-go lists objects, and does not ask for a stream of them
// (WatchList).
const withoutStreams = "KUBE_FEATURE_WatchListClient=false"

// compareLists measures a start of a hub that the API server streams all objects to, and of a hub that lists them.
func (c *scale) compareLists(ctx context.Context, s *stage) error {
	streamed, err := c.measure(ctx, s)
	if err != nil {
		return err
	}
	s.say("without WatchList:")
	listed, err := c.measure(ctx, s, withoutStreams)
	c.prepared[StreamReady], c.prepared[StreamPeak] = streamed.ready.Seconds(), streamed.peak
	c.prepared[ListReady], c.prepared[ListPeak] = listed.ready.Seconds(), listed.peak
	return err
}

// started is what a hub takes that has just started.
type started struct {
	usage               // without work; heap is the live heap
	ready time.Duration // from its start
}

// measure starts a hub with further environment variables, and stops it.
func (c *scale) measure(ctx context.Context, s *stage, env ...string) (u started, err error) {
	began := time.Now()
	a, err := startHub(ctx, s, s.Drivers, env...)
	defer func() { err = errors.Join(err, a.stop(context.WithoutCancel(ctx))) }()
	if err != nil {
		return started{}, err
	}
	u.ready = time.Since(began)
	pause(ctx, 2*time.Second) // the garbage of the start has been collected
	if u.usage, err = a.usage(ctx); err != nil {
		return started{}, err
	}
	vitals, err := testbed.ReadVitals(ctx, a.urls[0])
	u.heap = float64(vitals.Heap)
	s.say("ready after %.1f s; memory %s, at most %s, live heap %s", u.ready.Seconds(), megabytes(u.resident), megabytes(u.peak), megabytes(u.heap))
	return u, err
}

// createAttached makes a VolumeAttachment as the hub leaves it when it has attached the volume, and tells the driver.
func (v volume) createAttached(ctx context.Context, s *stage, d *testbed.Driver) error {
	id := testbed.NodeID(v.node)
	if err := d.Backend.Set(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: v.name, Node: id}}}); err != nil {
		return fmt.Errorf("attach volume %s at the driver: %w", v.name, err)
	}
	va := v.attachment()
	va.Finalizers = []string{attach.Finalizer(v.driver)}
	va.Annotations = map[string]string{attach.AnnotationNodeID: id, attach.AnnotationVolumeHandle: v.name}
	client := s.client().StorageV1().VolumeAttachments()
	made, err := client.Create(ctx, va, metav1.CreateOptions{FieldManager: attach.FieldManager})
	if err != nil {
		return fmt.Errorf("create volumeattachment %s: %w", v.name, err)
	}
	made.Status.Attached = true
	made.Status.AttachmentMetadata = map[string]string{"devicePath": "/dev/disk/by-id/" + v.name}
	if _, err := client.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: attach.FieldManager}); err != nil {
		return fmt.Errorf("set volumeattachment %s to attached: %w", v.name, err)
	}
	return nil
}
