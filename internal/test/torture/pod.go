package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// moveAfter is how long a pod waits for its volume before it moves to another node.
	moveAfter = 2 * time.Second
	// lookEvery is how often something is looked at that is waited for.
	lookEvery = 20 * ms
)

// pod asks for one volume on one node at a time. As the attach-detach controller does for real Pods,
// it waits until its VolumeAttachment is gone before it asks for the volume elsewhere.
type pod struct {
	world  *world
	name   string
	volume *volume
	nodes  []string // to which it may move
	random *rand.Rand

	orders chan Kind // faults of its VolumeAttachment to carry out

	mu    sync.Mutex // guards all below
	asked asked
	busy  bool // in the middle of a move
}

// asked is what a pod asks for; nothing without a node.
type asked struct {
	node string
	uid  types.UID
}

func (p *pod) attachment(node string) testbed.VolumeAttachment {
	va := testbed.VolumeAttachment{Name: p.name + "." + node, Driver: driverName(p.volume.driver), Node: node}
	if p.volume.inline {
		va.Inline = p.volume.object().Inline()
	} else {
		va.PersistentVolume = p.volume.name
	}
	return va
}

// run moves from node to node until ctx ends.
func (p *pod) run(ctx context.Context) {
	for {
		order := p.idle(ctx)
		if ctx.Err() != nil {
			return
		}
		if early := p.world.early; order == "" && early > 0 && p.random.IntN(early) == 0 {
			order = DeletedEarly
		}
		if err := p.move(ctx, order); err != nil && ctx.Err() == nil {
			p.world.fail(fmt.Errorf("pod %s: %w", p.name, err))
			return
		}
		p.set(func() { p.busy = false })
	}
}

func (p *pod) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// order orders a move at once. It reports whether the pod has accepted the order.
func (p *pod) order(k Kind) bool {
	select {
	case p.orders <- k:
		return true
	default:
		return false
	}
}

// idle blocks until the next move is due, and returns the order for it; empty: the pod moves by itself.
// The pod is busy then.
func (p *pod) idle(ctx context.Context) (order Kind) {
	due := time.Now().Add(time.Duration((0.3 + 1.4*p.random.Float64()) * float64(p.world.linger)))
	for ; ctx.Err() == nil; wait(ctx, lookEvery) {
		select {
		case order = <-p.orders:
		default:
			order = ""
		}
		if late := time.Since(due); (order != "" || late > moveAfter || late > 0 && p.mayLeave()) && p.begin() {
			break
		}
	}
	return order
}

// begin makes the pod busy. It reports false while pods rest.
func (p *pod) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = !p.world.resting.Load()
	return p.busy
}

// mayLeave reports whether the pod has its volume, or wants none.
func (p *pod) mayLeave() bool {
	now, _ := p.current()
	return now.node == "" || p.is(now, func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached })
}

// is reports whether something holds of the VolumeAttachment that the pod asks for.
func (p *pod) is(a asked, holds func(*storagev1.VolumeAttachment) bool) bool {
	va, exists := p.world.Attachments.Get(p.attachment(a.node).Name)
	return exists && va.UID == a.uid && holds(va)
}

// current returns what the pod asks for, and whether it is busy.
func (p *pod) current() (asked, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked, p.busy
}

// move makes one move, as ordered or by itself.
func (p *pod) move(ctx context.Context, order Kind) error {
	now, _ := p.current()
	node := now.node
	if node == "" {
		node = p.nodes[p.random.IntN(len(p.nodes))]
	} else {
		if order != DeletedEarly && !p.guarded(ctx, now) {
			return nil // pods rest
		}
		if err := p.leave(ctx, now); err != nil || order == "" {
			return err
		}
	}
	if order == VolumeReplaced {
		err := p.volume.remove(ctx)
		if err == nil {
			err = p.world.Cluster.Ensure(ctx, p.volume.object())
		}
		if err != nil {
			return err
		}
	}
	if err := p.ask(ctx, node); err != nil || order != DeletedEarly {
		return err
	}
	made, _ := p.current()
	return p.leave(ctx, made)
}

// ask makes a VolumeAttachment for the node.
func (p *pod) ask(ctx context.Context, node string) error {
	made, err := p.world.Cluster.Attach(ctx, p.attachment(node))
	if err != nil {
		return err
	}
	p.set(func() { p.asked = asked{node, made.UID} })
	p.world.history.add(p.volume.name, "%s asks for it on %s", p.name, node)
	return nil
}

// guarded blocks until a VolumeAttachment has its finalizer: without one it could vanish while its
// volume is being attached, which only a hasty stretch allows. It returns false when pods are to rest.
func (p *pod) guarded(ctx context.Context, a asked) bool {
	finalizer := attach.Finalizer(driverName(p.volume.driver))
	for !p.world.hasty.Load() && !p.is(a, func(va *storagev1.VolumeAttachment) bool { return slices.Contains(va.Finalizers, finalizer) }) {
		if wait(ctx, lookEvery); ctx.Err() != nil || p.world.resting.Load() {
			return false
		}
	}
	return true
}

// leave deletes a VolumeAttachment and blocks until it is gone.
func (p *pod) leave(ctx context.Context, a asked) error {
	p.set(func() { p.asked = asked{} })
	p.world.history.add(p.volume.name, "%s leaves %s", p.name, a.node)
	return p.world.Cluster.Detach(ctx, p.world.Attachments, p.attachment(a.node).Name, a.uid)
}

// takeFinalizer removes all finalizers of the pod's VolumeAttachment, as a user with kubectl can.
// It reports whether it has.
func (p *pod) takeFinalizer(ctx context.Context) (done bool, err error) {
	now, _ := p.current()
	if now.node == "" {
		return false, nil
	}
	name := p.attachment(now.node).Name
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, now.uid)
	err = testbed.Insist(ctx, "take finalizer of VolumeAttachment "+name, func(ctx context.Context) error {
		_, err := p.world.client.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return nil // the VolumeAttachment is gone
		}
		done = err == nil
		return err
	})
	return done, err
}
