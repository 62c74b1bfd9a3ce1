package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// newDemoCommand runs a scene from its set-up to its end.
func newDemoCommand() *cobra.Command {
	var keep bool
	cmd := newSceneCommand(&cobra.Command{
		Use:   "demo",
		Short: "Watch Pods of four drivers get their volumes, on a real control plane",
		Long: `Start a Kubernetes control plane, four fake CSI drivers and csi-attach-hub, make
Pods, and watch their volumes get attached and detached.

One driver is fast, one slow, one fails at first, and one hangs until the volumes
of all others are attached. At the end the books of the drivers are checked: exit
code 0 means that everything held, 1 that it did not, or that it was stopped before
its end. With --keep everything goes on running at the end, until Enter or Ctrl-C.`,
	}, "time limit of the demo, without the builds and --keep", func(ctx context.Context, o sceneOptions) error {
		if keep {
			o.enter = os.Stdin
		}
		return runDemo(ctx, o)
	})
	cmd.Flags().BoolVar(&keep, "keep", false, "keep everything running at the end until Enter; if stdin is no terminal, until its end or Ctrl-C")
	return cmd
}

// runDemo runs a scene and blocks until everything has been stopped. Its error says
// what did not hold, or that ctx ended first.
func runDemo(ctx context.Context, o sceneOptions) error {
	s, err := newScene(ctx, o)
	if err != nil {
		return err
	}
	d := &demo{scene: s, counters: newCounters(s.workload.drivers)}
	s.onAttachment = func(was, now *storagev1.VolumeAttachment) { d.counters.observe(time.Now(), was, now) }
	d.display = newDisplay(o.out, d.counters.rows)
	if err = d.run(ctx); err == nil && ctx.Err() == nil && o.enter != nil {
		return d.keep(ctx)
	}
	stopped := d.stop(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return errors.Join(errors.New("demo: stopped before its end"), stopped, d.close(stopped != nil))
	}
	if err = errors.Join(err, stopped); err != nil {
		err = d.explain(err)
		return errors.Join(err, d.close(true))
	}
	fmt.Fprint(o.out, d.report)
	fmt.Fprintf(o.out, pageEnded, d.report.page)
	return d.close(false)
}

// pageEnded follows the report of a demo that has stopped everything.
const pageEnded = `
The hub's status page was %s and ended with the demo. To keep it: make demo KEEP=1,
or make sandbox, which prints commands to try.
`

// keep prints the report, waits until the user has seen enough, and stops everything.
func (d *demo) keep(ctx context.Context) error {
	how := "Press Enter to stop everything."
	if !isTerminal(d.opts.enter) {
		how = "Everything stops at the end of stdin, or with Ctrl-C."
	}
	fmt.Fprintf(d.opts.out, "%s\nEverything still runs. The hub's status page: %s\n%s\n", d.report, d.report.page, how)
	err := testbed.WhileRunning(ctx, d.Processes(), func(ctx context.Context) error {
		waitForEnter(ctx, d.opts.enter)
		return nil
	})
	err = errors.Join(err, d.stop(context.WithoutCancel(ctx)))
	return errors.Join(err, d.close(err != nil))
}

// demo is a scene that runs by itself.
type demo struct {
	*scene
	counters *counters
	display  *display
	report   report
}

// explain adds the end of the hub's log to an error.
func (d *demo) explain(err error) error {
	err = fmt.Errorf("demo: this did not hold:\n%w", err)
	if d.hub == nil {
		return err
	}
	return fmt.Errorf("%w\nthe last lines of the hub's log:\n%s", err, d.hub.LastLines(20))
}

// run sets the scene, plays it and checks the books, while the display runs.
func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.opts.timeout, fmt.Errorf("not done %v after the start (--timeout)", d.opts.timeout))
	defer cancel()
	var shown sync.WaitGroup
	// The last things to show come after ctx has ended.
	showing, hide := context.WithCancel(context.WithoutCancel(ctx))
	shown.Go(func() { d.display.run(showing) })
	defer shown.Wait()
	defer hide()

	d.display.phase("Set-up: a control plane, %d drivers, a hub; %d nodes, %d bound claims.", len(behaviours), d.opts.nodes, d.opts.pods)
	began := time.Now()
	if err := d.start(ctx); err != nil {
		return err
	}
	d.report.setUp, d.report.page = time.Since(began), d.hub.URL+"/"
	d.display.say("The hub's status page: %s", d.report.page)
	return testbed.WhileRunning(ctx, d.Processes(), d.play)
}

// play attaches and detaches, and checks the books.
func (d *demo) play(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end()
	for _, p := range d.running {
		watching.Go(func() { d.watchCalls(ctx, p) })
	}
	for _, act := range []func(context.Context) error{d.attachOthers, d.attachRest, d.detach, d.check} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watchCalls gives the counters the publishes in flight of a driver, until ctx ends.
func (d *demo) watchCalls(ctx context.Context, p sceneDriver) {
	_ = p.Backend.Wait(ctx, func(b fakecsi.Books) bool {
		d.counters.inFlight(p.driver(), b.Methods[fakecsi.ControllerPublishVolume].InFlight.Now)
		return false
	})
}

// attachOthers makes the Pods and blocks until all volumes are attached but those of
// the driver that hangs.
func (d *demo) attachOthers(ctx context.Context) error {
	hanging := d.sceneDriver("hanging")
	stuck := len(d.workload.of(hanging.driver()))
	d.display.phase("Phase 1: attach. %d Pods are made; one driver of %d hangs.", d.opts.pods, len(behaviours))
	d.report.began = time.Now()
	d.counters.expect(d.workload.counts())
	if err := d.Cluster.Create(ctx, d.workload.pods()...); err != nil {
		return err
	}
	if err := d.Attachments.WaitFor(ctx, "the volumes of all drivers but the hanging one to be attached", d.workload.attachedBut(hanging.driver())); err != nil {
		return err
	}
	d.report.others = time.Since(d.report.began)
	if err := hanging.waitFor(ctx, "a call that hangs", func(b fakecsi.Books) bool { return b.AttachInFlight.Now > 0 }); err != nil {
		return err
	}
	t := d.counters.times(func(driver string) bool { return driver != hanging.driver() })
	d.display.say("hanging has %d waiting; the other %d are attached, p50 %s, p99 %s.",
		stuck, d.opts.pods-stuck, t.show(t.P50), t.show(t.P99))
	return nil
}

// attachRest releases the hanging driver and blocks until the nodes list all volumes.
func (d *demo) attachRest(ctx context.Context) error {
	d.display.phase("Phase 1: attach. The driver that hangs is let go.")
	if err := d.sceneDriver("hanging").Backend.Set(fakecsi.Knobs{ReleaseAll: true}); err != nil {
		return err
	}
	if err := d.Attachments.WaitFor(ctx, "all volumes to be attached", testbed.AllAttached(d.opts.pods)); err != nil {
		return err
	}
	d.display.phase("Phase 1: attach. All are attached; the attach-detach controller tells the nodes.")
	nodes, err := testbed.WatchNodes(ctx, d.Plane.Clientset(), nil)
	if err != nil {
		return err
	}
	defer nodes.Close()
	if err := nodes.WaitFor(ctx, "status.volumesAttached of every node to name every volume that its Pods use", d.workload.onNodes); err != nil {
		return err
	}
	d.report.attach = time.Since(d.report.began)
	d.display.say("Every node names every volume that its Pods use.")
	return nil
}

// detach deletes the Pods and blocks until nothing is attached anywhere.
func (d *demo) detach(ctx context.Context) error {
	d.display.phase("Phase 2: detach. The Pods are deleted.")
	began := time.Now()
	d.counters.expect(nil)
	if err := d.Cluster.Delete(ctx, d.workload.pods()...); err != nil {
		return err
	}
	if err := d.Attachments.WaitFor(ctx, "every VolumeAttachment to be gone", testbed.NoneLeft[*storagev1.VolumeAttachment]); err != nil {
		return err
	}
	for _, p := range d.running {
		if err := p.waitFor(ctx, "an empty storage", func(b fakecsi.Books) bool { return len(b.Attached) == 0 }); err != nil {
			return err
		}
	}
	d.report.detach = time.Since(began)
	d.display.say("Every VolumeAttachment is gone, and every storage is empty.")
	return nil
}

// check audits the books of the drivers.
func (d *demo) check(context.Context) error {
	d.display.phase("The books are checked.")
	var wrong []error
	for i, r := range d.counters.rows() {
		p := d.running[i]
		books := p.Backend.Books()
		volumes := len(d.workload.of(p.driver()))
		for _, w := range audit(p.behaviour, volumes, books) {
			wrong = append(wrong, errors.New(w))
		}
		d.report.drivers = append(d.report.drivers, driverReport{
			row: r, volumes: volumes,
			publishes:   books.Methods[fakecsi.ControllerPublishVolume].Begun,
			unpublishes: books.Methods[fakecsi.ControllerUnpublishVolume].Begun,
		})
	}
	return errors.Join(wrong...)
}
