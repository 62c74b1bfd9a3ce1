package chaos

import (
	"fmt"
	"net/http"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

const (
	publish   = fakecsi.ControllerPublishVolume
	unpublish = fakecsi.ControllerUnpublishVolume
)

// brokenRule is a rule that did not hold at a moment.
type brokenRule struct {
	at   moment
	in   place
	text string
}

// moments checks the rules that hold at each moment, for what has happened in r. before is the tail of the history
// before r. The books of package fakecsi check the rule of one call for a volume at a time.
func moments(before, r record) []brokenRule {
	p := pastOf(joined(before, r))
	var found []brokenRule
	find := func(at moment, in place, format string, args ...any) {
		found = append(found, brokenRule{at, in, fmt.Sprintf(format, args...)})
	}
	for _, c := range r.calls {
		if c.At < r.from {
			continue
		}
		if c.Method == publish {
			p.judgePublish(c, find)
		}
		p.judgeRepeated(c, find)
	}
	for _, w := range r.writes {
		if w.By == "" || !w.known() || w.Lease != nil {
			continue
		}
		if w.Node == "" {
			p.judgeVolumeWrite(w, find)
		} else {
			p.judgeAttachmentWrite(w, find)
		}
	}
	for _, c := range r.changes {
		if !c.Attached && c.Call != 0 {
			p.judgeDetach(c, find)
		}
	}
	return found
}

type finder func(at moment, in place, format string, args ...any)

// judgePublish checks the begin of a publish. A volume for one node must not be attached elsewhere, unless the
// driver has refused to detach it there: it decides then.
func (p *past) judgePublish(c call, find finder) {
	for _, other := range p.nodes[place{Driver: c.Driver, Volume: c.Volume}] {
		if other.Node != c.Node && !c.Shared && !p.everFree(other, c.At, c.At) && !p.refusedDetach(other, c.At) {
			find(c.At, c.place, "call %d by %s publishes it on %s, while it is attached to %s and no detach there was refused", c.ID, c.By, c.Node, other.Node)
		}
	}
}

// judgeRepeated checks that a call does not repeat what another hub had finished before the term of the caller: a
// takeover reads. It asks only where the caller cannot know better: it has never made a call there, and nothing has
// happened there since.
func (p *past) judgeRepeated(c call, find finder) {
	va, ok := p.settled(c.place, c.At)
	if ok && c.Method == unpublish && va.Verb == http.MethodPost && va.By == "" {
		va, ok = p.settled(c.place, va.At-1) // of the VolumeAttachment before, which the caller may still see
	}
	term, leads := p.termOf(c.Driver, c.By, c.At)
	if !ok || !leads || va.Until >= term || va.By == "" || va.By == hubOf(c.By) || p.happenedSince(c, va.At) || p.watchedAnew(hubOf(c.By), va.At, c.At) {
		return
	}
	switch {
	case va.Gone:
		find(c.At, c.place, "%s call %d by %s on %s, though %s had finished with %s before %s took over the driver", c.Method, c.ID, c.By, c.Node, va.By, va.Object, c.By)
	case va.Attached && va.Guarded && !va.Deleting && c.Method == publish && !p.everFree(c.place, va.At, c.At):
		find(c.At, c.place, "call %d by %s publishes it on %s again, though %s had reported it attached before %s took over the driver", c.ID, c.By, c.Node, va.By, c.By)
	}
}

// judgeAttachmentWrite checks what a hub says about a VolumeAttachment. What a fault has detached is no fault of the
// hub, which finds it in the driver's list only. Of a driver that has come back without PUBLISH_UNPUBLISH_VOLUME a hub
// reports volumes as attached without a call.
func (p *past) judgeAttachmentWrite(w write, find finder) {
	was, known := p.previous(w)
	switch {
	case w.Attached && !(known && was.Attached) && !p.lacked(w.Driver, w.At, w.Until) && !p.everAttached(w.place, w.At, w.Until) && !p.lostBefore(w.place, w.Until):
		find(w.At, w.place, "%s reports %s as attached, and the storage does not have it on %s", w.By, w.Object, w.Node)
	case !w.Attached && known && was.Attached && !p.everFree(w.place, w.At, w.Until):
		find(w.At, w.place, "%s reports %s as detached, while it is attached to %s", w.By, w.Object, w.Node)
	}
	if !w.Guarded && (w.Deleting || known && was.Guarded) && !p.everFree(w.place, w.At, w.Until) {
		find(w.At, w.place, "%s removes the finalizer of %s, while it is attached to %s", w.By, w.Object, w.Node)
	}
}

// judgeVolumeWrite checks that a hub removes the finalizer of a PersistentVolume only when it is attached nowhere.
func (p *past) judgeVolumeWrite(w write, find finder) {
	was, known := p.previous(w)
	if w.Guarded || !w.Deleting && !(known && was.Guarded) {
		return
	}
	for _, at := range p.nodes[w.place] {
		if !p.everFree(at, w.At, w.Until) {
			find(w.At, w.place, "%s removes the finalizer of %s, while it is attached to %s", w.By, w.Object, at.Node)
		}
	}
}

// judgeDetach checks that a call detaches nothing that is wanted: a VolumeAttachment reports it as attached and is
// not being deleted.
func (p *past) judgeDetach(c change, find finder) {
	if va, ok := p.settled(c.place, c.At); ok && va.Attached && !va.Deleting {
		find(c.At, c.place, "call %d detaches it from %s, while %s reports it as attached and is not being deleted", c.Call, c.Node, va.Object)
	}
}
