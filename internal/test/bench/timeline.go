package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// moment is a step on the way of a volume from its Pod to its node.
type moment int

const (
	podBound      moment = iota // this program sends the Pod
	attachWanted                // the VolumeAttachment exists
	driverCalled                // the driver gets ControllerPublishVolume
	volumeReady                 // status.attached of the VolumeAttachment is true
	nodeReported                // node.status.volumesAttached has the volume: a kubelet would mount it now
	attachMoments               // how many there are
)

// timeline notes when each volume reaches each moment, and when its VolumeAttachment is gone. Its methods may be called from any
// goroutine.
type timeline struct {
	mu       sync.Mutex
	at       map[string]*[attachMoments]time.Time // by PersistentVolume; guarded by mu, as all below
	reported map[corev1.UniqueVolumeName]string   // PersistentVolumes, by their names in node.status.volumesAttached
	deleting map[string]time.Time                 // when this program deleted the Pod, by PersistentVolume
	gone     map[string]time.Duration             // from then until the VolumeAttachment is gone
	left     int                                  // volumes that are not there yet
	there    chan struct{}                        // closed when none is left
}

// beginAttach begins to note the way of volumes to their nodes.
func (t *timeline) beginAttach(volumes []volume) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.reported = map[string]*[attachMoments]time.Time{}, map[corev1.UniqueVolumeName]string{}
	for _, v := range volumes {
		t.at[v.name], t.reported[v.attachedName()] = &[attachMoments]time.Time{}, v.name
	}
	t.deleting = nil
	t.left, t.there = len(volumes), make(chan struct{})
}

// beginDetach begins to note the end of VolumeAttachments.
func (t *timeline) beginDetach(volumes []volume) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleting, t.gone = map[string]time.Time{}, map[string]time.Duration{}
	t.left, t.there = len(volumes), make(chan struct{})
}

// bound notes that this program sends the Pod next.
func (t *timeline) bound(v volume) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at[v.name][podBound] = time.Now()
}

// deleted notes that this program deletes the Pod next.
func (t *timeline) deleted(v volume) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deleting[v.name] = time.Now()
}

// observeAttachment handles a change of a VolumeAttachment.
func (t *timeline) observeAttachment(was, now *storagev1.VolumeAttachment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now == nil {
		name := volumeOf(was)
		if began, deleting := t.deleting[name]; deleting && t.gone[name] == 0 {
			t.gone[name] = time.Since(began)
			t.oneThere()
		}
		return
	}
	if at := t.at[volumeOf(now)]; at != nil {
		note(&at[attachWanted])
		if now.Status.Attached {
			note(&at[volumeReady])
		}
	}
}

// observeNode handles a change of a Node.
func (t *timeline) observeNode(_, now *corev1.Node) {
	if now == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, attached := range now.Status.VolumesAttached {
		if at := t.at[t.reported[attached.Name]]; at != nil && note(&at[nodeReported]) {
			t.oneThere()
		}
	}
}

// oneThere counts a volume that has come to the end of its way. The caller holds mu.
func (t *timeline) oneThere() {
	if t.left--; t.left == 0 {
		close(t.there)
	}
}

// note sets a time that is not set yet, and reports whether it did.
func note(at *time.Time) bool {
	if !at.IsZero() {
		return false
	}
	*at = time.Now()
	return true
}

func volumeOf(va *storagev1.VolumeAttachment) string {
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

// wait blocks until all volumes have come to the end of their way.
func (t *timeline) wait(ctx context.Context, what string) error {
	t.mu.Lock()
	there := t.there
	t.mu.Unlock()
	select {
	case <-there:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return fmt.Errorf("wait until volumes of Pods are %s: %d are not: %w", what, t.left, context.Cause(ctx))
	}
}

// attached returns the ways of all volumes. The moment of the first call to the driver comes from the drivers' books.
func (t *timeline) attached(drivers []*testbed.Driver) (journeys, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range drivers {
		for _, call := range d.Backend.Books().CallsOf(fakecsi.ControllerPublishVolume, "") {
			at := t.at[call.Volume]
			// The books have the calls of earlier bursts too.
			if at != nil && call.Start.After(at[podBound]) && (at[driverCalled].IsZero() || call.Start.Before(at[driverCalled])) {
				at[driverCalled] = call.Start
			}
		}
	}
	var all journeys
	for name, at := range t.at {
		if at[driverCalled].IsZero() {
			return nil, fmt.Errorf("the volume %s was attached without a call", name)
		}
		all = append(all, journeyOf(*at))
	}
	return all, nil
}

// detached returns how long each VolumeAttachment took to go.
func (t *timeline) detached() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	var took []time.Duration
	for _, one := range t.gone {
		took = append(took, one)
	}
	return took
}
