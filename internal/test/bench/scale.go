package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// quietFor is how long a hub is watched for calls and writes that it should not make.
	quietFor = 5 * time.Second
	// attachWrites is how many writes an attach takes if the PersistentVolume has its finalizer.
	attachWrites = 2
)

// scale is the case of a large cluster. Its objects are made in steps, and a hub that starts after each step shows what they cost.
type scale struct {
	nodes    int
	attached int     // volumes of each driver that stay attached
	burst    int     // further volumes of each driver
	prepared Figures // what prepare has measured
}

// scaleCase returns the case of 100,000 attached volumes.
func scaleCase() Case {
	c := &scale{nodes: 5000, attached: 10_000, burst: 500, prepared: Figures{}}
	return Case{
		Name: "scale", About: "100,000 volumes of 10 drivers, all attached, on 5,000 nodes; then 5,000 at once; a restart of the API server",
		Drivers: 10, Nodes: 1, Workers: 100, Rounds: 1, alone: true, booked: true, prepare: c.prepare, turn: c.turn,
		Targets: []target{
			atMost(Ready, 12), exactly(StartCalls, 0), exactly(StartWrites, 0), atMost(ResidentIdle, 300e6),
			exactly(RelistCalls, 0), exactly(RelistWrites, 0),
		},
	}
}

// prepare makes the objects, and measures hubs between the steps.
func (c *scale) prepare(ctx context.Context, s *stage) error {
	before, err := c.resident(ctx, s)
	if err != nil {
		return err
	}
	var volumes []volume
	for _, step := range []struct {
		figure Figure
		make   func() (int, error)
	}{
		{ResidentPerNode, func() (int, error) { return c.nodes - 1, c.makeNodes(ctx, s) }},
		{ResidentPerVolume, func() (int, error) {
			volumes = spread("pv", s.names, s.Nodes, c.attached)
			return len(volumes), each(ctx, volumes, s.create)
		}},
		{ResidentPerAttachment, func() (int, error) { return len(volumes), each(ctx, volumes, s.createAttached) }},
	} {
		n, err := step.make()
		if err != nil {
			return err
		}
		after, err := c.resident(ctx, s)
		if err != nil {
			return err
		}
		c.prepared[step.figure] = (after - before) / float64(n)
		s.say("%s: %s", step.figure, step.figure.text(c.prepared[step.figure]))
		before = after
	}
	s.volumes = spread("burst", s.names, s.Nodes, c.burst)
	return each(ctx, s.volumes, s.create)
}

// resident returns the memory of a hub that has just started.
func (c *scale) resident(ctx context.Context, s *stage) (_ float64, err error) {
	a, err := s.startHub(ctx, s.Drivers)
	defer func() { err = errors.Join(err, a.stop(context.WithoutCancel(ctx))) }()
	if err == nil {
		err = pause(ctx, 2*time.Second) // the garbage of the start has been collected
	}
	return a.usage().resident, err
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

// createAttached makes a VolumeAttachment as the hub leaves it when it has attached the volume, and tells the driver.
func (s *stage) createAttached(ctx context.Context, v volume) error {
	id := testbed.NodeID(v.node)
	d := s.Drivers[slices.Index(s.names, v.driver)]
	if err := d.Backend.Set(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: v.name, Node: id}}}); err != nil {
		return fmt.Errorf("attach volume %s at the driver: %w", v.name, err)
	}
	va := v.attachment()
	va.Finalizers = []string{attach.Finalizer(v.driver)}
	va.Annotations = map[string]string{attach.AnnotationNodeID: id, attach.AnnotationVolumeHandle: v.name}
	client := s.client().StorageV1().VolumeAttachments()
	made, err := client.Create(ctx, va, metav1.CreateOptions{FieldManager: attach.FieldManager})
	if err != nil {
		return err
	}
	made.Status.Attached = true
	made.Status.AttachmentMetadata = map[string]string{"devicePath": "/dev/disk/by-id/" + v.name}
	_, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: attach.FieldManager})
	return err
}

// turn measures a start, a burst, and a restart of the API server.
func (c *scale) turn(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	figures, err := s.start(ctx, a)
	if err != nil {
		return nil, err
	}
	burst, err := s.burst(ctx, a, s.volumes)
	if err != nil {
		return nil, err
	}
	maps.Copy(figures, burst)
	maps.Copy(figures, c.prepared)
	u := a.usage()
	figures[ResidentEnd], figures[ResidentPeak] = u.resident, u.peak
	return figures, s.relist(ctx, a, figures)
}

// start measures what the start took.
func (s *stage) start(ctx context.Context, a *attacher) (Figures, error) {
	if err := pause(ctx, quietFor); err != nil {
		return nil, err
	}
	u := a.usage()
	after, err := s.count(ctx)
	w := after.since(a.before)
	s.say("%s: ready after %s", a.name, duration(a.ready.Seconds()))
	return Figures{Ready: a.ready.Seconds(), StartCalls: float64(w.all()), StartWrites: float64(w.writes), ResidentIdle: u.resident}, err
}

// relist restarts the API server, which ends all watches, and attaches a volume of each driver. A watch cannot go on where it
// ended: the new API server does not know what happened before its start.
func (s *stage) relist(ctx context.Context, a *attacher, figures Figures) error {
	for _, p := range a.processes {
		// The kernel measures the peak anew.
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0); err != nil {
			return err
		}
	}
	made := s.countCalls()
	s.Plane.Kill()
	if err := s.Plane.StartAgain(ctx); err != nil {
		return fmt.Errorf("restart the API server: %w", err)
	}
	t, err := s.attach(ctx, s.warmUp) // informers may list again since the API server is ready
	if err != nil {
		return err
	}
	if err := pause(ctx, quietFor); err != nil { // PersistentVolumes may be listed longer
		return err
	}
	after, err := s.count(ctx) // the new API server counts from zero
	if err != nil {
		return err
	}
	w := after.since(counts{calls: made})
	u := a.usage()
	figures[RelistRecovered], figures[RelistPeak] = t.elapsed.Seconds(), u.peak
	figures[RelistCalls] = float64(w.all() - len(s.warmUp))
	figures[RelistWrites] = float64(w.writes - attachWrites*len(s.warmUp))
	s.say("%s: attaches %s after a restart of the API server, memory at most %s", a.name, duration(figures[RelistRecovered]), megabytes(u.peak))
	return nil
}
