package hub

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// A driver answers FailedPrecondition to ControllerPublishVolume if the volume is published to another node and is not a
// multi-node volume (CSI spec, "Volume published to another node"). If no VolumeAttachment has the volume, nothing
// would ever detach it: the driver is asked where it is.

// refusedAttaches has the attaches of one term that the driver refuses so.
type refusedAttaches struct {
	mu  sync.Mutex
	all map[string]*refusedAttach // by name of the VolumeAttachment; guarded by mu
	// again is when the objects may be searched again for what the driver answers. A search looks at all of them, and a driver
	// that refuses every attach would take the processor from the others. Guarded by mu.
	again time.Time
}

// maySearch reports whether the objects may be searched now.
func (r *refusedAttaches) maySearch(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !now.Before(r.again)
}

// searched notes that a search has ended. Searches take at most a tenth of the time, those that end together too.
func (r *refusedAttaches) searched(now time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.again.Before(now) {
		r.again = now
	}
	r.again = r.again.Add((listShare - 1) * took)
}

type refusedAttach struct {
	uid       types.UID
	target    attach.Target // of the attach
	since     time.Time     // a listing that begins later answers it
	answered  bool          // a listing has answered it
	elsewhere []status.Elsewhere
}

// note notes that the driver has refused an attach, and returns what the last listing has answered. Nil: a listing must
// answer it.
func (r *refusedAttaches) note(va *storagev1.VolumeAttachment, target attach.Target, hasEntry func(volume.Key) bool) []status.Elsewhere {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.all[va.Name]; a != nil && a.uid == va.UID && a.target == target && !isBeingDetached(a.elsewhere) {
		return a.elsewhere
	}
	r.put(va, refusedAttach{target: target, since: time.Now()}, hasEntry) // also after a detach there
	return nil
}

// put adds an attach. It drops those whose entry is gone.
func (r *refusedAttaches) put(va *storagev1.VolumeAttachment, a refusedAttach, hasEntry func(volume.Key) bool) {
	for name := range r.all {
		if !hasEntry(volume.ClaimKey(name)) {
			delete(r.all, name)
		}
	}
	if r.all == nil {
		r.all = map[string]*refusedAttach{}
	}
	a.uid = va.UID
	r.all[va.Name] = &a
}

// answer notes the driver's own answer for an attach.
func (r *refusedAttaches) answer(va *storagev1.VolumeAttachment, target attach.Target, elsewhere []status.Elsewhere, hasEntry func(volume.Key) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(va, refusedAttach{target: target, answered: true, elsewhere: elsewhere}, hasEntry)
}

// drop drops an attach that the driver does not refuse any more.
func (r *refusedAttaches) drop(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, name)
}

// elsewhere returns where the driver says that the volume of an attach is.
func (r *refusedAttaches) elsewhere(va *storagev1.VolumeAttachment) []status.Elsewhere {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.all[va.Name]; a != nil && a.uid == va.UID {
		return a.elsewhere
	}
	return nil
}

// wait reports whether an attach waits for a listing.
func (r *refusedAttaches) wait() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.all {
		if !a.answered {
			return true
		}
	}
	return false
}

// before returns the attaches, by name, that were refused before a listing began, at the latest.
func (r *refusedAttaches) before(began time.Time) map[string]refusedAttach {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]refusedAttach{}
	for name, a := range r.all {
		if !a.since.After(began) {
			all[name] = *a
		}
	}
	return all
}

// listed notes what a listing has answered for an attach.
func (r *refusedAttaches) listed(name string, was refusedAttach, elsewhere []status.Elsewhere) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.all[name]; a != nil && a.uid == was.uid && a.since.Equal(was.since) {
		a.answered, a.elsewhere = true, elsewhere
	}
}

func isBeingDetached(all []status.Elsewhere) bool {
	return slices.ContainsFunc(all, func(e status.Elsewhere) bool { return e.Detaching })
}

// refusedError is the error of an attach with the places where the driver has the volume.
type refusedError struct {
	cause     error
	elsewhere []status.Elsewhere
	handle    string
}

// maxCause bounds the driver's own message, in bytes, so that the status has room for the rest.
const maxCause = 500

func (e refusedError) Error() string {
	parts := []string{csiclient.Truncate(e.cause.Error(), maxCause)}
	for _, at := range e.elsewhere {
		end := danglingEnd(registry.UnexpectedReport)
		switch {
		case at.Detaching:
			end = "detaching it there first"
		case at.Kept != "":
			end = "not detaching it there because " + at.Kept
		}
		parts = append(parts, danglingText(e.handle, at.NodeID, at.Node), end)
	}
	return strings.Join(parts, "; ")
}

func (e refusedError) Unwrap() error { return e.cause }

// lookElsewhere asks the driver where a volume is whose attach it has refused. It returns the error of the attach with the
// answer, and whether the volume is being detached there now. It blocks until the driver has answered, for at most
// probeTimeout, and writes the error without the answer before that.
func (l *leader) lookElsewhere(ctx context.Context, e *volume.Entry, va *storagev1.VolumeAttachment, c *volume.Claim, op attach.Operation, err error) (error, bool) {
	p := l.table.Believed(c)
	call, ok := errors.AsType[*attach.CallError](err)
	if !ok || op != attach.Attaching || grpcstatus.Code(call.Err) != codes.FailedPrecondition || p.Nodes == attach.MultiNode || l.isElsewhere(va, p.Target) {
		l.refused.drop(va.Name)
		return err, false
	}
	var elsewhere []status.Elsewhere
	switch s := l.session(); {
	case s == nil:
	case s.Info().Capabilities.GetVolume && !l.refused.maySearch(time.Now()): // a later try asks
	case s.Info().Capabilities.GetVolume:
		l.writeError(ctx, va, e, op, err)
		elsewhere = l.askForVolume(ctx, e, p.Target)
		l.refused.answer(va, p.Target, elsewhere, l.table.Has)
	case s.Info().Capabilities.ListPublishedNodes && l.settings().Drift.Interval > 0:
		if elsewhere = l.refused.note(va, p.Target, l.table.Has); elsewhere == nil {
			l.wake() // for the listing
		}
	}
	if len(elsewhere) == 0 {
		return err, false
	}
	return refusedError{err, elsewhere, p.Target.VolumeHandle}, isBeingDetached(elsewhere)
}

// isElsewhere reports whether another VolumeAttachment has, or may have, the volume of a target: its detach frees the
// volume.
func (l *leader) isElsewhere(va *storagev1.VolumeAttachment, target attach.Target) bool {
	for _, other := range l.cluster.AttachmentsOfVolume(attach.VolumeName(va)) {
		if other = l.overlay.Newest(other); other.Name != va.Name && other.Spec.Attacher == l.name && (other.Status.Attached || other.DeletionTimestamp != nil) {
			return true
		}
	}
	return false
}

// askForVolume asks the driver where a volume is, and acts on the answer.
func (l *leader) askForVolume(ctx context.Context, e *volume.Entry, target attach.Target) []status.Elsewhere {
	asked := time.Now()
	handle := l.decider().ListedHandle(target.VolumeHandle, target.NodeID)
	nodes, err := (&callerOf{l, e.Key, e.Lane()}).volumeNodes(ctx, handle)
	if err != nil {
		l.logger.V(2).Info("ControllerGetVolume failed, so it is not known where the volume is", "volumeHandle", target.VolumeHandle, "err", err)
		return nil
	}
	// The entry of the attach has the volume for itself: no other call for it can be in flight. Who asks for the volume is
	// looked at again before the call that detaches it.
	began := time.Now()
	found := l.findDangling(ctx, csiclient.Published{handle: *nodes}, nil, func(attach.Target) bool { return false })
	l.refused.searched(time.Now(), time.Since(began))
	return l.freeVolume(ctx, found, target, asked)
}

// volumeNodes asks the driver where a volume is. It blocks for at most probeTimeout.
func (c *callerOf) volumeNodes(ctx context.Context, handle string) (*csiclient.PublishedNodes, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return call(ctx, c, "ControllerGetVolume", &handle, func(s Session, ctx context.Context, handle *string) (*csiclient.PublishedNodes, error) {
		nodes, err := s.VolumeNodes(ctx, *handle)
		return &nodes, err
	})
}

// freeVolume returns where the driver has found the volume of an attach that it has refused, and asks for its detach there if
// drift.unexpected says so. The refusal and the report are two pieces of evidence, and need no confirmation.
func (l *leader) freeVolume(ctx context.Context, found []attach.Dangling, target attach.Target, asked time.Time) []status.Elsewhere {
	elsewhere := []status.Elsewhere{} // not nil: the driver has answered
	for _, d := range found {
		at := status.Elsewhere{NodeID: l.redactor.Text(d.Listed.NodeID, csiclient.MaxVersion), Node: d.Node(), Asked: asked, Kept: d.Kept()}
		own := attach.Target{VolumeHandle: target.VolumeHandle, NodeID: d.Listed.NodeID}
		if _, known := l.table.Unowned(own); known {
			at.Detaching, at.Kept = true, ""
		} else if at.Kept == "" && l.settings().Drift.Unexpected == registry.UnexpectedDetach {
			at.Kept = l.onDangling(ctx, l.nodesNow(), d)
			at.Detaching = at.Kept == ""
		}
		elsewhere = append(elsewhere, at)
	}
	return elsewhere
}

// answerRefused answers the attaches that were refused before a listing began, at the latest. Those whose volume is being detached
// elsewhere now are tried again after that.
func (l *leader) answerRefused(ctx context.Context, found []attach.Dangling, began time.Time) {
	byHandle := map[string][]attach.Dangling{}
	for _, d := range found {
		byHandle[d.Listed.VolumeHandle] = append(byHandle[d.Listed.VolumeHandle], d)
	}
	for name, a := range l.refused.before(began) {
		elsewhere := l.freeVolume(ctx, byHandle[l.decider().ListedHandle(a.target.VolumeHandle, a.target.NodeID)], a.target, began)
		l.refused.listed(name, a, elsewhere)
		if isBeingDetached(elsewhere) {
			l.table.RetryNow(volume.ClaimKey(name))
		}
	}
}
