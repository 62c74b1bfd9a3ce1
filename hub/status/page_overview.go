package status

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// mostTrouble is how many rows of VolumeAttachments in trouble the first page shows.
	mostTrouble = 10
	// mostReasons is how many reasons of a driver's health it shows.
	mostReasons = 3
)

// overviewPage is the first page: a row for each driver.
type overviewPage struct {
	frame
	Query       string
	State       string
	States      []string // choices of the filter
	Drivers     []driverRow
	Known       int // drivers, also those that the filter hides
	Broken      int // likewise
	Attention   int
	Standby     int
	Attachments attachmentTotals
	Trouble     int         // VolumeAttachments that are broken or need attention
	Table       volumeTable // of these, the worst first
	Unclaimed   []named
}

// Healths returns the choices of the filter beside States.
func (overviewPage) Healths() []HealthState {
	return append([]HealthState{problems}, HealthStates...)
}

// driverRow is a driver with its recent operations.
type driverRow struct {
	Driver
	Spark spark
}

// Reasons returns the worst reasons of the health, and MoreReasons how many others there are.
func (d driverRow) Reasons() []Reason {
	return d.Health.Reasons[:min(len(d.Health.Reasons), mostReasons)]
}
func (d driverRow) MoreReasons() int { return len(d.Health.Reasons) - len(d.Reasons()) }

// Row returns a row with the frame of its page.
func (p overviewPage) Row(d driverRow) driverPage { return driverPage{frame: p.frame, driverRow: d} }

// headline returns the title of the browser's tab.
func (p overviewPage) headline() string {
	switch {
	case p.Broken > 0:
		return count(p.Broken) + " broken"
	case p.Attention > 0:
		return plural(p.Attention, "driver needs attention", "drivers need attention")
	}
	return "Drivers"
}

// named counts something by name.
type named struct {
	Name  string
	Count int
}

// attachmentTotals counts VolumeAttachments by state.
type attachmentTotals struct {
	All, Open int // Open: neither attached nor idle
	By        map[AttachmentState]int
}

// In returns how many are in a state.
func (t attachmentTotals) In(s AttachmentState) int { return t.By[s] }

// Others returns the states but attached in which there are any.
func (t attachmentTotals) Others() []named {
	var found []named
	for _, s := range AttachmentStates {
		if n := t.By[s]; n > 0 && s != Attached {
			found = append(found, named{string(s), n})
		}
	}
	return found
}

func totals(all []Attachment) attachmentTotals {
	t := attachmentTotals{All: len(all), By: map[AttachmentState]int{}}
	for _, a := range all {
		t.By[a.State]++
		if open(a) {
			t.Open++
		}
	}
	return t
}

func (p *pages) overview(r *http.Request) answer {
	query := r.URL.Query()
	page := overviewPage{frame: p.frame(r, "Drivers"), Query: query.Get("q"), State: query.Get("state")}
	attachments := p.hub.attachments(AttachmentFilter{})
	drivers, by := p.hub.drivers(), map[HealthState]int{}
	for _, d := range p.driverRows(drivers, page.Now) {
		by[d.Health.State]++
		page.States = append(page.States, d.State)
		if matchesDriver(d.Driver, page.Query, page.State, page.Now) {
			page.Drivers = append(page.Drivers, d)
		}
	}
	slices.Sort(page.States)
	page.States = slices.Compact(page.States)
	page.Known, page.Broken, page.Attention, page.Standby = len(drivers), by[Broken], by[Attention], by[Standby]
	page.Attachments = totals(attachments)
	trouble := slices.DeleteFunc(attachments, func(a Attachment) bool { return !a.Health.Needs() })
	WorstFirst(trouble)
	rows := collapse(volumeRows(trouble, drivers, page.Overview, page.Now))
	page.Trouble, page.Table = len(trouble), volumeTable{frame: page.frame, Rows: rows[:min(len(rows), mostTrouble)]}
	for name, n := range bounded(page.Overview.Unclaimed) {
		page.Unclaimed = append(page.Unclaimed, named{name, n})
	}
	slices.SortFunc(page.Unclaimed, func(a, b named) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	page.Title = page.headline()
	return answer{http.StatusOK, "overview.html", page}
}

// driverRows returns drivers as rows: the worst first, of those in trouble the one that is so for the longest
// time, then by name.
func (p *pages) driverRows(drivers []Driver, now time.Time) []driverRow {
	all := make([]driverRow, len(drivers))
	for i, d := range drivers {
		all[i] = p.rowOf(d, now)
	}
	slices.SortStableFunc(all, func(a, b driverRow) int {
		return cmp.Or(a.Health.State.Compare(b.Health.State), cmp.Compare(a.troubleSince(), b.troubleSince()))
	})
	return all
}

// troubleSince returns since when the driver is in trouble, in Unix seconds, and the highest number if that is
// not known or it is not.
func (d driverRow) troubleSince() int64 {
	if !d.Health.Needs() || d.Health.Since.IsZero() {
		return math.MaxInt64
	}
	return d.Health.Since.Unix()
}

func (p *pages) rowOf(d Driver, now time.Time) driverRow {
	h := p.metrics.history(d.Name, now)
	return driverRow{d, newSpark(&h)}
}

// problems is the filter for drivers that are broken or need attention.
const problems = "problems"

// matchesDriver reports whether a driver has all words of text in its texts, and has the state or
// the health.
func matchesDriver(d Driver, text, state string, now time.Time) bool {
	switch state {
	case "", d.State, string(d.Health.State):
	case problems:
		if !d.Health.Needs() {
			return false
		}
	default:
		return false
	}
	texts := append([]string{d.Name, d.State, d.Reason, d.Mode, d.Source, d.Endpoint, d.Version, d.Lease.Holder}, d.Waiters...)
	for _, r := range d.Health.Reasons {
		texts = append(texts, r.Text(now))
	}
	return matchesText(text, texts...)
}

// matchesText reports whether all words of a query are in the texts.
func matchesText(query string, texts ...string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range strings.Fields(strings.ToLower(query)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}
