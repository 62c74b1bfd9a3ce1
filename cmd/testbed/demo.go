package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/statistics"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// newDemoCommand runs a scene from its set-up to its end.
func newDemoCommand() *cobra.Command {
	return newSceneCommand(&cobra.Command{
		Use:   "demo",
		Short: "Watch Pods of four drivers get their volumes, on a real control plane",
		Long: `Start a Kubernetes control plane, four fake CSI drivers and csi-attach-hub, make
Pods, and watch their volumes get attached and detached.

One driver is fast, one slow, one fails at first, and one hangs until the volumes
of all others are attached. At the end the books of the drivers are checked: exit
code 0 means that everything held, 1 that it did not, or that it was stopped before
its end.`,
	}, &sceneOptions{}, runDemo)
}

// demo is a scene that plays automatically.
type demo struct {
	*scene
	began time.Time

	mu   sync.Mutex // guards all below and serializes what is printed
	made map[types.UID]time.Time
	took map[string][]time.Duration // from the creation of a VolumeAttachment until it was attached, as a watcher saw it, by driver
}

// runDemo runs a scene and blocks until everything has been stopped. Its error says what did not hold, or that ctx ended first.
func runDemo(ctx context.Context, o sceneOptions) error {
	s, err := newScene(ctx, o)
	if err != nil {
		return err
	}
	d := &demo{scene: s, began: time.Now(), made: map[types.UID]time.Time{}, took: map[string][]time.Duration{}}
	s.onAttachment = d.observe
	switch err = d.run(ctx); {
	case ctx.Err() != nil:
		return errors.Join(errors.New("demo: stopped before its end"), s.end(ctx, nil))
	case err != nil && s.hub != nil:
		err = fmt.Errorf("demo: this did not hold:\n%w\nthe last lines of the hub's log:\n%s", err, s.hub.LastLines(20))
	case err == nil:
		d.say("The hub's status page ended with the demo. To keep it: make sandbox, which prints commands to try.")
	}
	return s.end(ctx, err)
}

// run sets the scene, plays it and checks the books.
func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.opts.timeout, fmt.Errorf("not done %v after the start", d.opts.timeout))
	defer cancel()
	d.say("Set-up: a control plane, %d drivers, a hub; %d nodes, %d bound claims.", len(behaviours), d.opts.nodes, d.opts.pods)
	if err := d.start(ctx); err != nil {
		return err
	}
	for _, b := range behaviours {
		d.say("  %-7s  %s", b.short, b.does)
	}
	d.say("The hub's status page: %s/", d.hub.URL)
	return testbed.WhileRunning(ctx, d.processes(), d.play)
}

// play attaches and detaches, and checks the books.
func (d *demo) play(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var showing sync.WaitGroup
	defer showing.Wait()
	defer end()
	showing.Go(func() { d.show(ctx) })
	hanging := d.driver("hanging")

	d.say("Phase 1: attach. %d Pods are made; one driver of %d hangs.", d.opts.pods, len(behaviours))
	if err := d.Cluster.Create(ctx, d.workload.pods()...); err != nil {
		return err
	}
	if err := d.Attachments.WaitFor(ctx, "the volumes of all drivers but the hanging one to be attached", d.workload.attachedBut(hanging.Name)); err != nil {
		return err
	}
	if err := hanging.Backend.Wait(ctx, func(b fakecsi.Books) bool { return b.AttachInFlight.Now > 0 }); err != nil {
		return err
	}
	d.say("The volumes of the other drivers are attached, while hanging has not answered. It is released now.")
	if err := hanging.Backend.Set(fakecsi.Knobs{ReleaseAll: true}); err != nil {
		return err
	}
	if err := d.Attachments.WaitFor(ctx, "all volumes to be attached", testbed.AllAttached(d.opts.pods)); err != nil {
		return err
	}

	d.say("Phase 2: detach. All volumes are attached; the Pods are deleted.")
	if err := d.Cluster.Delete(ctx, d.workload.pods()...); err != nil {
		return err
	}
	if err := d.Attachments.WaitFor(ctx, "every VolumeAttachment to be gone", testbed.NoneLeft[*storagev1.VolumeAttachment]); err != nil {
		return err
	}
	return d.check()
}

// say prints a line.
func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.opts.out, format+"\n", args...)
}

// show prints each second how many volumes of each driver are attached, if that has changed, until ctx ends.
func (d *demo) show(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := ""; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if line := d.progress(); line != last {
			d.say("  %3.0fs%s", time.Since(d.began).Seconds(), line)
			last = line
		}
	}
}

// progress returns how many volumes of each driver are attached, and how many fail.
func (d *demo) progress() string {
	var line strings.Builder
	now := statesOf(d.Attachments.List())
	for _, b := range behaviours {
		s := now[b.driver()]
		fmt.Fprintf(&line, "   %s: %2d of %d attached", b.short, s.attached, len(d.workload.of(b.driver())))
		if s.failing > 0 {
			fmt.Fprintf(&line, ", %d failing", s.failing)
		}
	}
	return line.String()
}

// observe notes how long a VolumeAttachment took to be attached.
func (d *demo) observe(_, now *storagev1.VolumeAttachment) {
	if now == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	made, known := d.made[now.UID]
	switch {
	case !known:
		d.made[now.UID] = time.Now()
	case now.Status.Attached && !made.IsZero():
		d.took[now.Spec.Attacher] = append(d.took[now.Spec.Attacher], time.Since(made))
		d.made[now.UID] = time.Time{}
	}
}

// check audits the books of the drivers, and prints a table of what they count.
func (d *demo) check() error {
	var wrong []error
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "driver\tvolumes\tpublishes\tunpublishes\tp50\tp99\t")
	d.mu.Lock()
	for i, b := range behaviours {
		books, volumes, took := d.Drivers[i].Backend.Books(), len(d.workload.of(b.driver())), d.took[b.driver()]
		wrong = append(wrong, audit(b, volumes, books)...)
		slices.Sort(took)
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\t%v\t\n", b.short, volumes, books.Methods[attachMethods[0]].Begun, books.Methods[attachMethods[1]].Begun,
			statistics.Percentile(took, 50).Round(time.Millisecond), statistics.Percentile(took, 99).Round(time.Millisecond))
	}
	d.mu.Unlock()
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	_ = table.Flush() // a strings.Builder gives no error
	d.say("Every VolumeAttachment is gone, and every storage is empty.\n\nEverything held.\n\n%s", text.String())
	d.say("publishes, unpublishes: calls, each counted in the driver's own books; p50, p99: from the creation of a\nVolumeAttachment until it was attached.\n")
	return nil
}

// audit returns what is wrong in the books of a driver with so many volumes, each
// attached once and detached once.
func audit(r behaviour, volumes int, b fakecsi.Books) []error {
	var wrong []error
	note := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf(r.short+": "+format, args...))
	}
	if b.ViolationCount > 0 {
		note("%d violations, the first one: %+v", b.ViolationCount, b.Violations[0])
	}
	if len(b.Attached) > 0 {
		note("still attached: %s", strings.Join(slices.Sorted(maps.Keys(b.Attached)), ", "))
	}
	for _, m := range attachMethods {
		book := b.Methods[m]
		// A call is made once for each need, and once more for each failure.
		if want := volumes * (1 + r.failures); book.Begun != want || book.Ended != want {
			note("%d calls of %s, of which %d have ended, want %d: %d volumes, each with %d failures before it works",
				book.Begun, m, book.Ended, want, volumes, r.failures)
		}
		if book.Changed != volumes || book.Unchanged != 0 {
			note("%d calls of %s changed something and %d did not, want %d and 0", book.Changed, m, book.Unchanged, volumes)
		}
	}
	return wrong
}
