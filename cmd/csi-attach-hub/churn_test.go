package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// Of how many cycles one has its VolumeAttachment deleted as soon as it is made, after one the volume stays at its node, and
// after one its PersistentVolume is made again.
const (
	earlyEvery = 8
	againEvery = 6
	renewEvery = 6
)

// churnOptions say what to attach and detach.
type churnOptions struct {
	Cluster *testbed.Cluster
	Watcher *testbed.Watcher[*storagev1.VolumeAttachment]
	Driver  string
	Volumes int      // how many there are; each is attached to one node at a time
	Nodes   []string // whose CSINodes have the driver
	Seed    uint64   // equal seeds choose equal nodes, and delete early in the same cycles
}

// churn is a steady load: each of its volumes is attached to a node, detached and attached to
// another or the same one, for ever. A volume's next VolumeAttachment is made when the one before is gone. Its name
// is that of volume and node, so names come again, as those of kube-controller-manager do.
type churn struct {
	o      churnOptions
	ending chan struct{} // closed when each volume is to be attached once more, and no further cycle is to begin
	done   chan struct{} // closed when all has ended

	mu      sync.Mutex
	settled map[string]string
	cycles  int
	err     error         // the first one
	changed chan struct{} // closed when cycles or err change
}

// startChurn begins, and goes on until Settle or the end of ctx. Errors of the API are retried, as it may be away for a while.
func startChurn(ctx context.Context, o churnOptions) *churn {
	c := &churn{o: o, ending: make(chan struct{}), done: make(chan struct{}), settled: map[string]string{}, changed: make(chan struct{})}
	var volumes sync.WaitGroup
	for i := range o.Volumes {
		random := rand.New(rand.NewPCG(o.Seed, uint64(i)))
		volumes.Go(func() {
			if err := c.run(ctx, fmt.Sprintf("%s-v%d", o.Driver, i), random); err != nil {
				c.change(func() { c.err = errors.Join(c.err, err) })
			}
		})
	}
	go func() {
		defer close(c.done)
		volumes.Wait()
	}()
	return c
}

// Cycles is how often a volume has been detached, of all volumes.
func (c *churn) Cycles() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cycles
}

// WaitCycles blocks until there were so many more cycles than now.
func (c *churn) WaitCycles(ctx context.Context, more int) error {
	want := c.Cycles() + more
	for {
		c.mu.Lock()
		cycles, err, changed := c.cycles, c.err, c.changed
		c.mu.Unlock()
		if cycles >= want || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-c.done:
			return fmt.Errorf("wait for %d more cycles: the churn has ended", want-cycles)
		case <-ctx.Done():
			return fmt.Errorf("wait for %d more cycles: %w: there are %s", want-cycles, context.Cause(ctx), c.o.Watcher.Summary())
		}
	}
}

// Settle ends the load with each volume attached, and returns on which node, by the name
// of the volume, which is also its handle. It blocks until all are, or until ctx ends.
func (c *churn) Settle(ctx context.Context) (map[string]string, error) {
	close(c.ending)
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("end churn: %w: there are %s", context.Cause(ctx), c.o.Watcher.Summary())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled, c.err
}

func (c *churn) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// run makes one volume, and attaches and detaches it.
func (c *churn) run(ctx context.Context, volume string, random *rand.Rand) error {
	pv := testbed.PersistentVolume{Name: volume, Driver: c.o.Driver}
	if err := c.o.Cluster.Ensure(ctx, pv); err != nil {
		return err
	}
	at := random.IntN(len(c.o.Nodes))
	for {
		node := c.o.Nodes[at]
		if random.IntN(againEvery) > 0 {
			at = (at + 1 + random.IntN(len(c.o.Nodes)-1)) % len(c.o.Nodes)
		}
		early := random.IntN(earlyEvery) == 0
		select {
		case <-c.ending:
			return c.finish(ctx, volume, node)
		default:
		}
		if err := c.cycle(ctx, c.attachment(volume, node), early); err != nil {
			return err
		}
		c.change(func() { c.cycles++ })
		if random.IntN(renewEvery) == 0 {
			if err := c.renew(ctx, pv); err != nil {
				return err
			}
		}
	}
}

// renew makes a PersistentVolume again when the one before is gone.
func (c *churn) renew(ctx context.Context, pv testbed.PersistentVolume) error {
	err := testbed.Insist(ctx, "delete "+pv.String(), func(ctx context.Context) error {
		if err := c.o.Cluster.Delete(ctx, pv); err != nil {
			return err
		}
		now, err := c.o.Cluster.Client().CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is still there with the finalizers %v", now.Finalizers)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.o.Cluster.Ensure(ctx, pv)
}

// finish attaches a volume for the last time.
func (c *churn) finish(ctx context.Context, volume, node string) error {
	va, err := c.o.Cluster.Attach(ctx, c.attachment(volume, node))
	if err != nil {
		return err
	}
	if err := c.waitAttached(ctx, va); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled[volume] = node
	return nil
}

func (c *churn) attachment(volume, node string) testbed.VolumeAttachment {
	return testbed.VolumeAttachment{Name: volume + "." + node, Driver: c.o.Driver, Node: node, PersistentVolume: volume}
}

// cycle makes a VolumeAttachment and blocks until it is gone.
func (c *churn) cycle(ctx context.Context, want testbed.VolumeAttachment, early bool) error {
	va, err := c.o.Cluster.Attach(ctx, want)
	if err != nil {
		return err
	}
	if !early {
		if err := c.waitAttached(ctx, va); err != nil {
			return err
		}
	}
	return c.o.Cluster.Detach(ctx, c.o.Watcher, va.Name, va.UID)
}

func (c *churn) waitAttached(ctx context.Context, va *storagev1.VolumeAttachment) error {
	return c.o.Watcher.WaitForOne(ctx, "attached", va.Name, func(now *storagev1.VolumeAttachment, exists bool) bool {
		return exists && now.UID == va.UID && now.Status.Attached
	})
}
