package torture

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// actsShown is how many findings about acts there are at most for one driver.
const actsShown = 3

// brokenRule is a rule that did not hold at a moment.
type brokenRule struct {
	at   moment
	in   place
	text string
}

// judgeHistory checks what was recorded since the last check, and forgets it. It returns the findings.
func (w *world) judgeHistory() (found []Finding) {
	if w.history == nil {
		return nil
	}
	before, now := w.tail, w.history.take()
	w.tail = joined(before, now).tail()
	for _, b := range slices.Concat(acts(before, now), moments(before, now)) {
		found = append(found, Finding{About: cmp.Or(b.in.Volume, b.in.Driver), Text: b.text, at: w.history.began.Add(b.at)})
	}
	return found
}

// acts checks who has acted for each driver in r. before is the tail of the history before r.
func acts(before, r record) (found []brokenRule) {
	leases := map[string][]write{}
	for _, w := range slices.Concat(before.writes, r.writes) {
		if w.Lease != nil {
			leases[w.Driver] = append(leases[w.Driver], w)
		}
	}
	for driver, acts := range actsOf(r) {
		bad := safety.Misplaced(turnsOf(leases[driver], r.to), acts)
		for _, a := range bad[:min(len(bad), actsShown)] {
			text := fmt.Sprintf("%v: it does not hold the lease at any moment of that", a)
			found = append(found, brokenRule{min(a.Until, r.to), place{Driver: driver, Volume: a.About}, text})
		}
	}
	return found
}

// actsOf returns the acts by driver. A call acts when it begins and when it ends, since the storage may change until its end.
// A call whose deadline does not fit into a lease is protected at its begin only, but a run has no such call.
func actsOf(r record) map[string][]safety.Act {
	acts := map[string][]safety.Act{}
	for _, c := range r.calls {
		if c.At < r.from {
			continue
		}
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

// moments checks the rules that hold at each moment, for what has happened in r. before is the tail of the history
// before r.
func moments(before, r record) []brokenRule {
	p := pastOf(joined(before, r))
	var found []brokenRule
	find := func(at moment, in place, who string, err error) {
		if err != nil {
			found = append(found, brokenRule{at, in, fmt.Sprintf("%s: %v", who, err)})
		}
	}
	for _, c := range r.calls {
		if c.At >= r.from {
			find(c.At, c.place, fmt.Sprintf("call %d by %s", c.ID, c.By), p.judgeRepeated(c))
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

// judgeRepeated checks that a call does not repeat what another hub had finished before the term of the caller: a
// takeover reads. It asks only where the caller cannot know better: it has never made a call there, and nothing has
// happened there since.
func (p *past) judgeRepeated(c call) error {
	va, ok := p.settled(c.place, c.At)
	if ok && c.Method == unpublish && va.Verb == http.MethodPost && va.By == "" {
		va, ok = p.settled(c.place, va.At-1) // of the VolumeAttachment before, which the caller may still see
	}
	term, leads := p.termOf(c.Driver, c.By, c.At)
	if !ok || !leads || va.Until >= term || va.By == "" || va.By == hubOf(c.By) || p.happenedSince(c, va.At) || p.watchedAnew(hubOf(c.By), va.At, c.At) {
		return nil
	}
	call := safety.Call{Method: safety.Method(c.Method), Place: c.place}
	switch {
	case va.Gone:
		return safety.Need(call, nil)
	case c.Method == publish && !p.everFree(c.place, va.At, c.At):
		return safety.Need(call, new(va.attachment()))
	}
	return nil
}

// judgeAttachmentWrite checks what a hub says about a VolumeAttachment. What a fault has detached is no fault of the
// hub, which finds it in the driver's list only. Of a driver that has come back without PUBLISH_UNPUBLISH_VOLUME a hub
// reports volumes as attached without a call.
func (p *past) judgeAttachmentWrite(w write) error {
	was, known := p.previous(w)
	before := was.attachment()
	before.Attached, before.Guarded = known && was.Attached, known && was.Guarded || w.Deleting
	before.Noted = w.place
	return safety.World{Has: func(at place) safety.Known {
		has := p.has(at, w.At, w.Until)
		if has == safety.No && (p.lacked(w.Driver, w.At, w.Until) || p.lostBefore(at, w.Until)) {
			return safety.Perhaps
		}
		return has
	}}.Wrote(before, w.attachment())
}

// judgeVolumeWrite checks that a hub removes the finalizer of a PersistentVolume only when it is attached nowhere.
func (p *past) judgeVolumeWrite(w write) error {
	was, known := p.previous(w)
	before := safety.Volume{Name: w.Volume, Place: w.place, Guarded: known && was.Guarded || w.Deleting}
	return safety.World{Published: p.nodes[w.place], Has: func(at place) safety.Known { return p.has(at, w.At, w.Until) }}.WroteVolume(before, safety.Volume{Guarded: w.Guarded})
}

// joined returns two parts of a history as one.
func joined(before, now record) record {
	return record{from: now.from, to: now.to, calls: slices.Concat(before.calls, now.calls),
		writes: slices.Concat(before.writes, now.writes), changes: slices.Concat(before.changes, now.changes), starts: now.starts, lacks: now.lacks}
}
