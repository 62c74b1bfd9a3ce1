package hub_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

const (
	// mostCallsAtOnce is how many calls for one volume at one node ID there may be at one moment.
	mostCallsAtOnce = 20
	// mostCalls is how many calls for one volume at one node ID there may be in a trial.
	mostCalls = 400
)

// checkCall checks a call that begins, and reports whether it may go on: calls that are repeated without a
// pause may not.
func (t *trial) checkCall(m fakecsi.Method, volume, nodeID string) bool {
	books := t.backend.Books()
	if m == fakecsi.ControllerUnpublishVolume {
		t.checkUnpublish(volume, nodeID)
	} else if !t.isMultiNode(volume) {
		t.checkPublish(books, volume, nodeID)
	}
	t.checkInFlight(m, volume, nodeID)
	t.mu.Lock()
	if now := time.Now(); now != t.atOnceSince {
		t.atOnceSince, t.atOnce = now, map[string]int{}
	}
	t.atOnce[volume+" at "+nodeID]++
	n := t.atOnce[volume+" at "+nodeID]
	t.mu.Unlock()
	if n > mostCallsAtOnce {
		t.fail("%s at %s: %d calls without a pause", volume, nodeID, n)
	}
	return n <= mostCallsAtOnce
}

// checkInFlight: there is one call for a volume at a time, for a volume that many nodes may have one at each node ID.
// It notes the call as one that is in flight.
func (t *trial) checkInFlight(m fakecsi.Method, volume, nodeID string) {
	t.mu.Lock()
	others := slices.Clone(t.inFlight[volume])
	t.inFlight[volume] = append(t.inFlight[volume], nodeID)
	t.mu.Unlock()
	if t.isMultiNode(volume) && t.driver.ParallelMultiNode {
		others = slices.DeleteFunc(others, func(other string) bool { return other != nodeID })
	}
	if len(others) > 0 {
		t.fail("%s %s at %s while calls at %v are in flight", m, volume, nodeID, others)
	}
}

// ended notes the end of a call.
func (t *trial) ended(volume, nodeID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.inFlight[volume], nodeID)
	t.inFlight[volume] = slices.Delete(t.inFlight[volume], i, i+1)
}

func (t *trial) isMultiNode(volume string) bool {
	return slices.ContainsFunc(t.volumes, func(v trialVolume) bool { return v.name == volume && v.multiNode })
}

// checkUnpublish: nobody's volume is taken away from where it is attached, and none that no VolumeAttachment owns from where
// it is in use, unless the deletion of a VolumeAttachment of that node asks for it.
func (t *trial) checkUnpublish(volume, nodeID string) {
	node := t.nodeNow(nodeID)
	inUse := node != "" && t.uses(node, volume) && !slices.ContainsFunc(t.attachmentsOf(volume), func(va storagev1.VolumeAttachment) bool {
		return va.DeletionTimestamp != nil && va.Spec.NodeName == node
	})
	for _, r := range t.replicas {
		if p := r.get(); p != nil {
			for _, u := range p.hub.Drivers()[0].Unowned {
				if u.VolumeHandle == volume && u.NodeID == nodeID && inUse {
					t.fail("ControllerUnpublishVolume %s at %s, whose node %s uses it", volume, nodeID, node)
				}
			}
		}
	}
	for _, va := range t.attachmentsOf(volume) {
		if va.DeletionTimestamp == nil && va.Status.Attached && guarded(va) && isNotedAt(va, volume, nodeID) {
			t.fail("ControllerUnpublishVolume %s at %s, where VolumeAttachment %s has it attached", volume, nodeID, va.Name)
		}
	}
}

// checkPublish: a single-node volume is asked for at a node only if it is published nowhere else, or if its detach
// there fails: then it backs off and the driver decides. It fails because the driver has refused it at the last call,
// or because the API server does not answer what is asked about the volume.
func (t *trial) checkPublish(books fakecsi.Books, volume, nodeID string) {
	t.mu.Lock()
	met, ever := t.metFault[volume]
	excused := t.contested[volume] || ever && time.Since(met) <= 2*t.driver.Retry.Max
	t.mu.Unlock()
	for other, at := range books.Attached[volume] {
		if other == nodeID || excused || at.Foreign { // the hub cannot know what somebody has attached by hand
			continue
		}
		last := fakecsi.Call{}
		for _, c := range books.Calls {
			if c.Volume == volume && c.Node == other {
				last = c
			}
		}
		if last.Method != fakecsi.ControllerUnpublishVolume || last.Code == codes.OK {
			t.fail("ControllerPublishVolume %s at %s while it is published at %s, and the last call there was %s: %v", volume, nodeID, other, last.Method, last.Code)
		}
	}
}

func isNotedAt(va storagev1.VolumeAttachment, volume, nodeID string) bool {
	return va.Annotations[attach.AnnotationNodeID] == nodeID && va.Annotations[attach.AnnotationVolumeHandle] == volume
}

// checkWrite carries out a write of a process and checks what it has changed.
func (t *trial) checkWrite(p *process, request *http.Request) (*http.Response, error) {
	path := shortPath(request)
	parts := strings.Split(path, "/")
	resource, name := parts[0], parts[1]
	var before *storagev1.VolumeAttachment
	if strings.HasSuffix(path, "/status") {
		before = t.get(name)
	}
	had := resource == "persistentvolumes" && t.hasVolume(name)
	response, err := t.api.RoundTrip(request)
	code := 0
	if response != nil {
		code = response.StatusCode
	}
	t.say("  %s: %s %s: %d", p.name, request.Method, path, code)
	t.mu.Lock()
	t.writes++
	t.mu.Unlock()
	if code != http.StatusOK {
		return response, err
	}
	if before != nil {
		t.checkStatus(before, t.get(name))
	} else if resource == "volumeattachments" {
		t.lookForUnclaimed()
	} else if had && !t.hasVolume(name) {
		t.checkPersistentVolumeGone(p, name)
	}
	return response, err
}

// checkStatus: what is said to be attached is.
func (t *trial) checkStatus(before, after *storagev1.VolumeAttachment) {
	if after == nil || before.Status.Attached || !after.Status.Attached || after.DeletionTimestamp != nil {
		return
	}
	if nodeID := after.Annotations[attach.AnnotationNodeID]; !t.backend.Books().IsAttached(volumeOf(*after), nodeID) {
		t.fail("VolumeAttachment %s got attached: true, and the driver has not published it at %s", after.Name, nodeID)
	}
}

// checkPersistentVolumeGone: it goes only if its volume is published nowhere, and no VolumeAttachment has it. What no
// VolumeAttachment asks for holds it for stuckAfter and no longer.
func (t *trial) checkPersistentVolumeGone(p *process, volume string) {
	t.say("  PersistentVolume %s is gone", volume)
	named := t.attachmentsOf(volume)
	if t.hasVolume(volume) {
		return // made again since: they may have been attached for the new one
	}
	for _, va := range named {
		if guarded(va) || va.Status.Attached {
			t.fail("PersistentVolume %s is gone, and VolumeAttachment %s has its volume", volume, va.Name)
		}
	}
	t.mu.Lock()
	since := t.unclaimed[volume]
	t.mu.Unlock()
	stuckAfter := t.driver.StuckAfter
	if !since.IsZero() && time.Since(since) >= stuckAfter {
		return
	}
	unowned := map[string]time.Time{}
	for _, d := range p.hub.Drivers() {
		for _, u := range d.Unowned {
			if u.VolumeHandle == volume {
				unowned[u.NodeID] = u.Since
			}
		}
	}
	attached := t.backend.Books().Attached[volume]
	if t.hasVolume(volume) {
		return // made again since, and the volume may be published for the new one
	}
	for nodeID, at := range attached {
		if at.Foreign {
			continue
		}
		if since, known := unowned[nodeID]; !known || time.Since(since) < stuckAfter {
			t.fail("PersistentVolume %s is gone, and its volume is published at %s", volume, nodeID)
		}
	}
}

// checkNow checks what holds whenever nothing moves at the moment.
func (t *trial) checkNow() {
	books := t.backend.Books()
	for _, va := range t.attachments() {
		nodeID := va.Annotations[attach.AnnotationNodeID]
		if va.DeletionTimestamp == nil && va.Status.Attached && guarded(va) && !books.IsAttached(volumeOf(va), nodeID) {
			t.fail("VolumeAttachment %s has attached: true, and the driver has not published it at %s", va.Name, nodeID)
		}
	}
	for _, v := range books.Violations[t.violations:] {
		byHand := v.Call == 0
		if !byHand && v.Kind != fakecsi.AskedTwice && v.Kind != fakecsi.ConcurrentCalls { // see checkPublish and checkInFlight, which know more
			t.fail("%s of %s %v by call %d: %s", v.Kind, v.Volume, v.Nodes, v.Call, v.Detail)
		}
	}
	t.violations = len(books.Violations)
}

// unsettled returns what is not as it is asked for.
func (t *trial) unsettled() []string {
	var found []string
	books := t.backend.Books()
	owned := map[fakecsi.VolumeNode]bool{}
	for _, va := range t.attachments() {
		volume := volumeOf(va)
		if guarded(va) { // its deletion detaches it
			owned[fakecsi.VolumeNode{Volume: va.Annotations[attach.AnnotationVolumeHandle], Node: va.Annotations[attach.AnnotationNodeID]}] = true
		}
		switch {
		case va.DeletionTimestamp != nil:
			found = append(found, fmt.Sprintf("VolumeAttachment %s is still being deleted: %+v", va.Name, va.Status.DetachError))
		case va.Status.Attached && !guarded(va):
			found = append(found, fmt.Sprintf("VolumeAttachment %s is attached and has no finalizer", va.Name))
		case va.Status.Attached:
			if va.Status.AttachError != nil || va.Status.DetachError != nil {
				found = append(found, fmt.Sprintf("VolumeAttachment %s is attached and has an error: %+v", va.Name, va.Status))
			}
		case !t.contested[volume] && !t.isDeleted(volume) && !t.isBlocked(volume):
			found = append(found, fmt.Sprintf("VolumeAttachment %s is not attached: %+v", va.Name, va.Status.AttachError))
		}
	}
	for volume, at := range books.Attached {
		for nodeID, attachment := range at {
			if attachment.Foreign && t.mayStay(volume, nodeID) {
				continue
			}
			if t.isWaitedFor(volume, nodeID) {
				continue
			}
			if !owned[fakecsi.VolumeNode{Volume: volume, Node: nodeID}] {
				found = append(found, fmt.Sprintf("%s is published at %s, and no VolumeAttachment has it there", volume, nodeID))
			}
		}
	}
	for _, c := range books.Running {
		found = append(found, fmt.Sprintf("call %d %s %s is in flight", c.ID, c.Method, c.Volume))
	}
	return append(found, t.unownedByAny()...)
}

// isWaitedFor says whether a VolumeAttachment asks for a volume at a node ID and cannot be attached, because its PersistentVolume
// is gone: the volume stays where it is asked for until somebody deletes the VolumeAttachment.
func (t *trial) isWaitedFor(volume, nodeID string) bool {
	return t.isDeleted(volume) && slices.ContainsFunc(t.attachmentsOf(volume), func(va storagev1.VolumeAttachment) bool {
		return va.DeletionTimestamp == nil && slices.ContainsFunc(t.nodes, func(n *trialNode) bool { return n.name == va.Spec.NodeName && n.id == nodeID })
	})
}

// unownedByAny returns what the hubs say to be published where no VolumeAttachment asks for it.
func (t *trial) unownedByAny() []string {
	var found []string
	for _, r := range t.replicas {
		if p := r.get(); p != nil {
			for _, d := range p.hub.Drivers() {
				for _, u := range d.Unowned {
					if u.ReportOnly && t.mayStay(u.VolumeHandle, u.NodeID) || t.isWaitedFor(u.VolumeHandle, u.NodeID) {
						continue
					}
					found = append(found, fmt.Sprintf("%s says that %s is left at %s since %v", p.name, u.VolumeHandle, u.NodeID, u.Since.Sub(t.began)))
				}
			}
		}
	}
	return found
}

// leftOver returns what is left after everything was deleted.
func (t *trial) leftOver() []string {
	found := t.unsettled()
	for _, va := range t.attachments() {
		found = append(found, fmt.Sprintf("VolumeAttachment %s is there: finalizers %v", va.Name, va.Finalizers))
	}
	for _, volume := range t.volumes {
		pv, err := t.kube.CoreV1().PersistentVolumes().Get(t.t.Context(), volume.name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			found = append(found, fmt.Sprintf("PersistentVolume %s is there: finalizers %v, %v", volume.name, pv.Finalizers, err))
		}
	}
	calls := map[string]int{}
	for _, c := range t.backend.Books().Calls {
		if c.Volume != "" {
			calls[c.Volume+" at "+c.Node]++
		}
	}
	for _, at := range slices.Sorted(maps.Keys(calls)) {
		if calls[at] > mostCalls {
			found = append(found, fmt.Sprintf("%d calls for %s", calls[at], at))
		}
	}
	return found
}
