package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// actsShown is how many findings about acts there are at most for one driver.
const actsShown = 3

// judgeHistory checks what was recorded. It returns the findings.
func (w *world) judgeHistory() []Finding {
	if w.history == nil {
		return nil
	}
	r := w.history.record()
	return slices.Concat(acts(r), moments(r))
}

// finding says that something did not hold at a moment.
func (r record) finding(at moment, in place, format string, args ...any) Finding {
	return Finding{About: cmp.Or(in.Volume, in.Driver), Text: fmt.Sprintf(format, args...), at: r.began.Add(min(at, r.to))}
}

// acts checks who has acted for each driver.
func acts(r record) (found []Finding) {
	for driver, acts := range actsOf(r) {
		bad := safety.Misplaced(turnsOf(r, driver), acts)
		for _, a := range bad[:min(len(bad), actsShown)] {
			found = append(found, r.finding(a.Until, place{Driver: driver, Volume: a.About}, "%v: it does not hold the lease at any moment of that", a))
		}
	}
	return found
}

// actsOf returns the acts by driver. A call acts when it begins and when it ends, since the storage may change until its end.
// A call whose deadline does not fit into a lease is protected at its begin only, but a run has no such call.
func actsOf(r record) map[string][]safety.Act {
	acts := map[string][]safety.Act{}
	for _, c := range r.calls {
		text := fmt.Sprintf("call %d, %s of %s on %s", c.ID, c.Method, c.Volume, c.Node)
		acts[c.Driver] = append(acts[c.Driver], safety.Act{At: c.At, Until: c.At, By: c.By, Text: "begin of " + text, About: c.Volume})
		if c.Until != forEver {
			acts[c.Driver] = append(acts[c.Driver], safety.Act{At: c.Until, Until: c.Until, By: c.By, Text: "end of " + text, About: c.Volume})
		}
	}
	for _, w := range r.writes {
		if w.By != "" && w.Lease == nil && w.Driver != "" {
			acts[w.Driver] = append(acts[w.Driver], safety.Act{At: w.At, Until: max(w.At, w.Until), By: w.By, Text: w.Verb + " of " + w.Object, About: w.Volume})
		}
	}
	return acts
}

// moments checks the rules that hold at each moment.
func moments(r record) (found []Finding) {
	p := pastOf(r)
	find := func(at moment, in place, who string, err error) {
		if err != nil {
			found = append(found, r.finding(at, in, "%s: %v", who, err))
		}
	}
	for _, c := range r.calls {
		if r.takeover > 0 && c.At > r.takeover {
			find(c.At, c.place, fmt.Sprintf("call %d by %s", c.ID, c.By), p.judgeRepeated(c, r.takeover))
		}
	}
	for _, w := range r.writes {
		switch {
		case w.By == "" || !w.known() || w.Lease != nil:
		case w.Node == "":
			find(w.At, w.place, w.By, p.judgeVolumeWrite(w))
		default:
			find(w.At, w.place, w.By, p.judgeAttachmentWrite(w))
		}
	}
	for _, c := range r.changes {
		va, ok := p.settled(c.place, c.At)
		if !c.Attached && c.Call != 0 && ok {
			attachment := va.attachment()
			attachment.Guarded = true // a finalizer that a user has taken comes back
			find(c.At, c.place, fmt.Sprintf("call %d", c.Call), safety.Detach(safety.Call{Method: safety.Unpublish, Place: c.place}, []safety.Attachment{attachment}))
		}
	}
	return found
}

// judgeRepeated checks that a call after a takeover does not repeat what the process before had finished: a takeover
// reads. It asks only where nothing has happened since.
func (p *past) judgeRepeated(c call, takeover moment) error {
	va, ok := p.settled(c.place, c.At)
	if !ok || va.Until >= takeover || va.By == "" || p.happenedSince(c, va.At) {
		return nil
	}
	call := safety.Call{Method: safety.Method(c.Method), Place: c.place}
	switch {
	case va.Gone:
		return safety.Need(call, nil)
	case c.Method == publish && p.has(c.place, va.At, c.At) == safety.Yes:
		return safety.Need(call, new(va.attachment()))
	}
	return nil
}

// judgeAttachmentWrite checks what a hub says about a VolumeAttachment. What a fault has detached is no fault of the
// hub, which finds it in the driver's list only.
func (p *past) judgeAttachmentWrite(w write) error {
	was, known := p.previous(w)
	before := was.attachment()
	before.Noted, before.Guarded = w.place, known && was.Guarded || w.Deleting
	before.Attached = known && was.Attached || w.Attached && !strings.HasSuffix(w.Object, "/status") // a write without an answer said so
	return safety.World{Has: func(at place) safety.Known {
		if has := p.has(at, w.At, w.Until); has != safety.No || !p.lostBefore(at, w.Until) {
			return has
		}
		return safety.Perhaps
	}}.Wrote(before, w.attachment())
}

// judgeVolumeWrite checks that a hub removes the finalizer of a PersistentVolume only when it is attached nowhere.
func (p *past) judgeVolumeWrite(w write) error {
	was, known := p.previous(w)
	before := safety.Volume{Name: w.Volume, Place: w.place, Guarded: known && was.Guarded || w.Deleting}
	return safety.World{Published: p.nodes[w.place], Has: func(at place) safety.Known { return p.has(at, w.At, w.Until) }}.WroteVolume(before, safety.Volume{Guarded: w.Guarded})
}
