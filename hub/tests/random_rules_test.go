package tests

import (
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

const (
	// mostCallsAtOnce is how many calls for one volume at one node ID there may be at one moment.
	mostCallsAtOnce = 20
	// mostCalls is how many calls for one volume at one node ID there may be in a trial.
	mostCalls = 400
)

var trialFinalizer = attach.Finalizer(virtualDriver)

func asAttachment(va storagev1.VolumeAttachment) safety.Attachment {
	return safety.AttachmentOf(&va, trialFinalizer)
}

// asAttachments returns what VolumeAttachments say.
func asAttachments(vas []storagev1.VolumeAttachment) (all []safety.Attachment) {
	for _, va := range vas {
		all = append(all, asAttachment(va))
	}
	return all
}

// check notes what is wrong. It may be called from any goroutine.
func (t *trial) check(err error) {
	if err != nil {
		t.fail("%v", err)
	}
}

// saw takes what the driver tells. A single-node volume may be asked for elsewhere too where its detach fails, because the API
// server does not answer what is asked about the volume: then the detach backs off, and the driver decides.
func (t *trial) saw(e fakecsi.Event) {
	if e.Kind != fakecsi.Violated {
		return
	}
	t.mu.Lock()
	met, ever := t.metFault[e.Volume]
	excused := e.Violation.Rule == safety.OneNode && (t.contested[e.Volume] || ever && time.Since(met) <= 2*t.driver.Retry.Max)
	t.mu.Unlock()
	if !excused {
		t.fail("%s by call %d: %s", e.Violation.Rule, e.Call, e.Violation.Detail)
	}
}

// checkCall checks a call that begins, and reports whether it may go on: calls that are repeated without a
// pause may not.
func (t *trial) checkCall(c safety.Call, mode csi.VolumeCapability_AccessMode_Mode) bool {
	if c.Method == safety.Unpublish {
		t.checkUnpublish(c)
	} else if !t.isMultiNode(c.Volume) && strings.HasPrefix(mode.String(), "MULTI_NODE") {
		t.fail("%v has the access mode %v", c, mode)
	}
	t.mu.Lock()
	if now := time.Now(); now != t.atOnceSince {
		t.atOnceSince, t.atOnce = now, map[string]int{}
	}
	t.atOnce[c.Place.String()]++
	err := safety.AtMost(fmt.Sprintf("%v without a pause", c), t.atOnce[c.Place.String()], mostCallsAtOnce)
	t.mu.Unlock()
	t.check(err)
	return err == nil
}

func (t *trial) isMultiNode(volume string) bool {
	return slices.ContainsFunc(t.volumes, func(v trialVolume) bool { return v.name == volume && v.multiNode })
}

// checkUnpublish checks what a process detaches, with what it says about what no VolumeAttachment owns.
func (t *trial) checkUnpublish(c safety.Call) {
	vas := t.attachmentsOf(c.Volume)
	t.check(safety.Detach(c, asAttachments(vas)))
	node := t.nodeNow(c.Node)
	deleted := slices.ContainsFunc(vas, func(va storagev1.VolumeAttachment) bool {
		return va.DeletionTimestamp != nil && va.Spec.NodeName == node
	})
	for u := range t.dangling() {
		if u.VolumeHandle == c.Volume && u.NodeID == c.Node {
			t.check(safety.Use(c, node != "" && t.uses(node, c.Volume), deleted))
		}
	}
}

// dangling yields what the hubs say to be published where no VolumeAttachment asks for it.
func (t *trial) dangling() iter.Seq2[status.DanglingPublication, string] {
	return func(yield func(status.DanglingPublication, string) bool) {
		for _, r := range t.replicas {
			if p := r.get(); p != nil {
				for _, d := range p.hub.Drivers() {
					for _, u := range d.Dangling {
						if !yield(u, p.name) {
							return
						}
					}
				}
			}
		}
	}
}

// published returns the storage as the rules look at it. Of what somebody has attached by hand no hub can know.
func (t *trial) published() safety.World {
	books := t.backend.Books()
	return safety.World{Published: books.Places(), Has: func(p safety.Place) safety.Known {
		if at, ok := books.Attached[p.Volume][p.Node]; !ok {
			return safety.No
		} else if at.Foreign {
			return safety.Perhaps
		}
		return safety.Yes
	}}
}

// checkWrite carries out a write of a process and checks what it has changed.
func (t *trial) checkWrite(p *process, request *http.Request) (*http.Response, error) {
	path := shortPath(request)
	parts := strings.Split(path, "/")
	resource, name := parts[0], parts[1]
	var before *storagev1.VolumeAttachment
	had := resource == "persistentvolumes" && t.hasVolume(name)
	t.mu.Lock()
	strips := t.strips
	t.mu.Unlock()
	if resource == "volumeattachments" {
		before = t.get(name)
	}
	response, err := t.api.RoundTrip(request)
	code := 0
	if response != nil {
		code = response.StatusCode
	}
	t.say("  %s: %s %s: %d", p.name, request.Method, path, code)
	t.mu.Lock()
	t.writes++
	strips -= t.strips
	t.mu.Unlock()
	if code != http.StatusOK {
		return response, err
	}
	if before != nil && strips == 0 {
		t.checkAttachmentWrite(*before, t.get(name))
	}
	if resource == "volumeattachments" {
		t.lookForUnnamed()
	} else if had && !t.hasVolume(name) {
		t.checkPersistentVolumeGone(p, name)
	}
	return response, err
}

// checkAttachmentWrite checks what a write has made of a VolumeAttachment. One may go if its node has another node ID now:
// what is published at the former one is dangling then. Where no attach is required, the status says so before the detach.
func (t *trial) checkAttachmentWrite(before storagev1.VolumeAttachment, now *storagev1.VolumeAttachment) {
	was := asAttachment(before)
	is := safety.Attachment{Name: was.Name, Volume: was.Volume, Attached: was.Attached}
	if now != nil && now.UID == before.UID {
		is = asAttachment(*now)
	}
	t.mu.Lock()
	is.Attached = is.Attached || was.Attached && t.everUnrequired
	t.mu.Unlock()
	was.Guarded = was.Guarded && t.nodeNow(was.Noted.Node) == before.Spec.NodeName
	w := t.published()
	w.Attachments = asAttachments(t.attachmentsOf(was.Volume))
	t.check(w.Wrote(was, is))
}

// checkPersistentVolumeGone: what no VolumeAttachment asks for holds a PersistentVolume for stuckAfter and no longer.
func (t *trial) checkPersistentVolumeGone(p *process, volume string) {
	t.say("  PersistentVolume %s is gone", volume)
	named := asAttachments(t.attachmentsOf(volume))
	stuckAfter := t.driver.StuckAfter
	t.mu.Lock()
	since := t.unnamed[volume]
	t.mu.Unlock()
	unnamed := !since.IsZero() && time.Since(since) >= stuckAfter
	stuck := map[string]bool{}
	for u, by := range t.dangling() {
		stuck[u.NodeID] = stuck[u.NodeID] || by == p.name && u.VolumeHandle == volume && time.Since(u.Since) >= stuckAfter
	}
	w := t.published()
	has := w.Has
	w.Attachments, w.Has = named, func(at safety.Place) safety.Known {
		if unnamed || stuck[at.Node] {
			return min(safety.Perhaps, has(at))
		}
		return has(at)
	}
	if t.hasVolume(volume) {
		return // made again since: it may be attached for the new one
	}
	whole := safety.Place{Driver: virtualDriver, Volume: volume}
	t.check(w.WroteVolume(safety.Volume{Name: volume, Place: whole, Guarded: true}, safety.Volume{}))
}

// checkNow checks what holds whenever nothing moves at the moment.
func (t *trial) checkNow() {
	w := t.published()
	w.Attachments = slices.DeleteFunc(asAttachments(t.attachments()), func(c safety.Attachment) bool { return !c.Guarded })
	t.check(w.Statuses())
	for volume, flight := range t.backend.Books().VolumesInFlight {
		if flight.Max > 1 && !t.driver.ParallelMultiNode {
			t.fail("%s: there were %d calls at once", volume, flight.Max)
		}
	}
}

// rest is the world in the end.
func (t *trial) rest() safety.Rest {
	vas := t.attachments()
	r := safety.Rest{World: t.published(), Running: t.backend.Books().RunningCalls()}
	books := t.backend.Books()
	r.Has, r.Attachments = nil, asAttachments(vas)
	pvs, err := t.kube.CoreV1().PersistentVolumes().List(t.t.Context(), metav1.ListOptions{})
	if err != nil {
		t.fail("list PersistentVolumes: %v", err)
		return r
	}
	for i := range pvs.Items {
		r.Volumes = append(r.Volumes, safety.VolumeOf(&pvs.Items[i], trialFinalizer))
	}
	r.Waits = func(c safety.Attachment) bool {
		t.mu.Lock()
		contested := t.contested[c.Volume]
		t.mu.Unlock()
		return !c.Attached && (contested || t.isDeleted(c.Volume) || t.isBlocked(c.Volume))
	}
	r.MayStay = func(p safety.Place) bool { // where a VolumeAttachment with the finalizer has it noted, its deletion detaches it
		return r.Guards(p) || t.isWaitedFor(p.Volume, p.Node) || books.Attached[p.Volume][p.Node].Foreign && t.mayStay(p.Volume, p.Node)
	}
	return r
}

// unsettled returns what is not as it is asked for.
func (t *trial) unsettled() []string { return append(texts(t.rest().Settled()), t.danglingByAny()...) }

func texts(errs []error) (all []string) {
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

// isWaitedFor says whether a VolumeAttachment asks for a volume at a node ID and cannot be attached, because its PersistentVolume
// is gone: the volume stays where it is asked for until somebody deletes the VolumeAttachment.
func (t *trial) isWaitedFor(volume, nodeID string) bool {
	return t.isDeleted(volume) && slices.ContainsFunc(t.attachmentsOf(volume), func(va storagev1.VolumeAttachment) bool {
		return va.DeletionTimestamp == nil && slices.ContainsFunc(t.nodes, func(n *trialNode) bool { return n.name == va.Spec.NodeName && n.id == nodeID })
	})
}

// danglingByAny returns what the hubs say to be published where no VolumeAttachment asks for it, and where it may not stay.
func (t *trial) danglingByAny() []string {
	var found []string
	for u, by := range t.dangling() {
		if u.ReportOnly && t.mayStay(u.VolumeHandle, u.NodeID) || t.isWaitedFor(u.VolumeHandle, u.NodeID) {
			continue
		}
		found = append(found, fmt.Sprintf("%s says that %s is left at %s since %v", by, u.VolumeHandle, u.NodeID, u.Since.Sub(t.began)))
	}
	return found
}

// leftOver returns what is left after everything was deleted.
func (t *trial) leftOver() []string {
	rest := t.rest()
	rest.Wants, rest.Keeps = map[string]safety.Want{}, []string{}
	found := append(texts(rest.Settled()), t.danglingByAny()...)
	calls := map[string]int{}
	for _, c := range t.backend.Books().Calls {
		if c.Volume != "" {
			calls[c.Volume+" at "+c.Node]++
		}
	}
	for _, at := range slices.Sorted(maps.Keys(calls)) {
		if err := safety.AtMost("calls for "+at, calls[at], mostCalls); err != nil {
			found = append(found, err.Error())
		}
	}
	return found
}
