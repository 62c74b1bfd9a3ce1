package chaos

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

const (
	// actsShown is how many findings about acts there are at most for one driver and check.
	actsShown = 3
	// linesBefore and linesAfter bound the part of a history that is shown with a finding.
	linesBefore, linesAfter = moment(6e9), moment(5e8)
)

// judgeHistory checks what was recorded since the last check, and forgets it.
func (w *world) judgeHistory() []Finding {
	if w.history == nil {
		return nil
	}
	before, now := w.tail, w.history.take()
	w.tail = joined(before, now).tail()
	var found []Finding
	for _, s := range w.storages {
		found = append(found, w.judgeActs(before, now, s.Name)...)
	}
	for _, b := range moments(before, now) {
		found = append(found, Finding{About: b.in.Volume, Text: b.text, at: w.history.time(b.at), lines: w.linesAround(now, b.in, b.at)})
	}
	return found
}

// judgeActs checks who has acted for one driver.
func (w *world) judgeActs(before, now record, driver string) []Finding {
	var leases []write
	for _, x := range joined(before, now).writes {
		if x.Lease != nil && x.Driver == driver {
			leases = append(leases, x)
		}
	}
	var found []Finding
	for i, bad := range judge(turnsOf(leases, now.to), actsOf(now, driver)) {
		if i == actsShown {
			break
		}
		w.shown++
		page := fmt.Sprintf("%s.%s-%d.html", w.options.History, driver, w.shown)
		if err := porcupine.VisualizePath(bad.model, bad.info, page); err != nil {
			page = err.Error()
		}
		f := Finding{About: driver, at: w.history.time(bad.first.Until)}
		f.Text = fmt.Sprintf("%s: it does not hold the lease at any moment of that; %s", bad.first.Text, page)
		if bad.result == porcupine.Unknown {
			f.Text = fmt.Sprintf("not decided within %v who acted for it without its lease; %s", decideTime, page)
			f.at = w.history.time(now.to)
		}
		f.lines = w.linesAround(now, place{Driver: driver, Volume: bad.first.about}, min(bad.first.Until, now.to))
		found = append(found, f)
	}
	return found
}

// joined returns two parts of a history as one.
func joined(before, now record) record {
	return record{from: now.from, to: now.to, calls: slices.Concat(before.calls, now.calls),
		writes: slices.Concat(before.writes, now.writes), changes: slices.Concat(before.changes, now.changes), starts: now.starts, lacks: now.lacks}
}

// linesAround returns what was recorded about a volume and the lease of its driver around a moment.
func (w *world) linesAround(r record, in place, at moment) []line {
	var lines []line
	add := func(m moment, format string, args ...any) {
		if m > at-linesBefore && m < at+linesAfter {
			lines = append(lines, line{at: w.history.time(m), about: in.Volume, text: fmt.Sprintf(format, args...), whole: true})
		}
	}
	for _, c := range r.changes {
		if c.Driver == in.Driver && c.Volume == in.Volume {
			add(c.At, "storage: attached to %s: %v, by call %d", c.Node, c.Attached, c.Call)
		}
	}
	for _, c := range r.calls {
		if c.Driver == in.Driver && c.Volume == in.Volume {
			add(c.At, "history: call %d %s on %s by %s until %v: %s", c.ID, c.Method, c.Node, c.By, w.history.time(c.Until).Format(clock), c.Code)
		}
	}
	was := ""
	for _, x := range r.writes {
		took := (x.Until - x.At).Round(1e6)
		switch {
		case x.Driver != in.Driver:
		case x.Lease != nil:
			if x.Lease.Holder != was || !x.known() {
				add(x.At, "history: lease: %q holds it, outcome %d after %v", x.Lease.Holder, x.Code, took)
			}
			was = x.Lease.Holder
		case x.Volume == in.Volume:
			add(x.At, "history: %s of %s by %q, outcome %d after %v: version %d attached %v deleting %v guarded %v; %.80s",
				x.Verb, x.Object, x.By, x.Code, took, x.Version, x.Attached, x.Deleting, x.Guarded, x.Body)
		}
	}
	return lines
}
