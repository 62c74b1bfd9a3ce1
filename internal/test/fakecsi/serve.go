package fakecsi

import (
	"context"
	"time"

	"google.golang.org/grpc/status"
)

// Method is the name of a CSI RPC without its service, as in the CSI
// specification. In knobs the empty Method means every method.
type Method string

// The methods that a Backend answers and books.
const (
	Probe                     Method = "Probe"
	GetPluginInfo             Method = "GetPluginInfo"
	GetPluginCapabilities     Method = "GetPluginCapabilities"
	ControllerGetCapabilities Method = "ControllerGetCapabilities"
	ControllerPublishVolume   Method = "ControllerPublishVolume"
	ControllerUnpublishVolume Method = "ControllerUnpublishVolume"
	ListVolumes               Method = "ListVolumes"
)

var methods = []Method{
	Probe, GetPluginInfo, GetPluginCapabilities, ControllerGetCapabilities,
	ControllerPublishVolume, ControllerUnpublishVolume, ListVolumes,
}

// attaches reports whether the method is one of the two that attach and detach.
func (m Method) attaches() bool {
	return m == ControllerPublishVolume || m == ControllerUnpublishVolume
}

// effect changes the storage, with mu held. It returns whether it has changed
// anything, and the error to answer with.
type effect func(c *call) (changed bool, err error)

// serve books and runs one call. effect fills in the response. With an error the
// response is nil: callers in this process must see what callers on a socket see.
func serve[R any](ctx context.Context, b *Backend, r request, effect func(c *call, resp *R) (changed bool, err error)) (*R, error) {
	resp := new(R)
	err := b.serve(ctx, r, func(c *call) (bool, error) {
		if err := b.require(c, r.needs); err != nil {
			return false, err
		}
		return effect(c, resp)
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (b *Backend) serve(ctx context.Context, r request, e effect) error {
	b.mu.Lock()
	r.multiNode, r.modeKnown = b.multiNode(r)
	c := b.books.begin(ctx, r, time.Now())
	if r.method == ControllerPublishVolume {
		b.books.judgeElsewhere(c, b.storage.conflict(r.volume, r.node, Attachment{AccessMode: r.accessMode}, false))
	}
	c.plan = b.behaviour.plan(r)
	b.tell(CallBegan, c)
	b.note()
	b.mu.Unlock()

	changed, err := b.run(ctx, c, e)

	b.mu.Lock()
	b.books.end(c, changed, err, time.Now())
	b.tell(CallEnded, c)
	b.note()
	b.mu.Unlock()
	return err
}

// multiNode reports whether a call has a multi-node mode: the mode of a publish is in its request, and
// an unpublish has the mode of its attachment. known is false where no publish of the volume
// has been seen. Called with mu held.
func (b *Backend) multiNode(r request) (multiNode, known bool) {
	if r.method == ControllerPublishVolume {
		return !Attachment{AccessMode: r.accessMode}.singleNode(), true
	}
	if r.node == "" {
		return false, true // from all nodes
	}
	if a, ok := b.storage.volumes[r.volume][r.node]; ok && !a.Foreign {
		return !a.singleNode(), true
	}
	multiNode, known = b.books.multiNode[r.volume]
	return multiNode, known
}

// run applies the plan of the call, and the effect between its two halves.
func (b *Backend) run(ctx context.Context, c *call, e effect) (changed bool, err error) {
	if c.finishAbandoned {
		ctx = context.WithoutCancel(ctx)
	}
	if err := pass(ctx, c.latency); err != nil {
		return false, err
	}
	if err := await(ctx, c.before); err != nil {
		return false, err
	}
	if c.errBefore != nil {
		return false, c.errBefore
	}
	b.mu.Lock()
	b.effecting = c
	changed, err = e(c)
	b.effecting = nil
	b.note()
	b.mu.Unlock()
	if err := await(ctx, c.after); err != nil {
		return changed, err
	}
	if c.errAfter != nil {
		return changed, c.errAfter
	}
	return changed, err
}

// pass blocks for a time, or until the caller leaves.
func pass(ctx context.Context, d time.Duration) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return left(ctx)
}

// await blocks until all channels are closed, or until the caller leaves.
func await(ctx context.Context, gates []<-chan struct{}) error {
	for _, g := range gates {
		select {
		case <-g:
		case <-ctx.Done():
			return left(ctx)
		}
	}
	return nil
}

// left returns the error of a call whose caller has left; nil: the caller still waits.
func left(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return status.FromContextError(ctx.Err()).Err()
}
