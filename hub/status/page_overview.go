package status

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// mostTrouble is how many VolumeAttachments in trouble the first page shows.
const mostTrouble = 10

// overviewPage is the first page: a row for each driver.
type overviewPage struct {
	frame
	Query        string
	State        string
	States       []string // choices of the filter
	Drivers      []driverRow
	Known        int // drivers, also those that the filter hides
	Broken       int // likewise
	Attention    int
	Standby      int
	Attachments  attachmentTotals
	Table        attachmentTable // of those in trouble, the worst first
	Unclaimed    []named
	OtherHolders []Replica // holders of leases that are not replicas
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

// open reports whether an operation is due for a VolumeAttachment.
func open(a Attachment) bool { return a.State != Attached && a.State != Idle }

func (p *pages) overview(r *http.Request) answer {
	query := r.URL.Query()
	page := overviewPage{frame: p.frame(r, "Drivers"), Query: query.Get("q"), State: query.Get("state")}
	attachments := p.hub.attachments(AttachmentFilter{})
	all, by := p.driverRows(page.Now), map[HealthState]int{}
	for _, d := range all {
		by[d.Health.State]++
		page.States = append(page.States, d.State)
		if matchesDriver(d.Driver, page.Query, page.State, page.Now) {
			page.Drivers = append(page.Drivers, d)
		}
	}
	slices.Sort(page.States)
	page.States = slices.Compact(page.States)
	page.Known, page.Broken, page.Attention, page.Standby = len(all), by[Broken], by[Attention], by[Standby]
	page.Attachments = totals(attachments)
	page.Table = attachmentTable{frame: page.frame, Rows: worst(attachments, urgency[:2], mostTrouble)}
	for name, n := range bounded(page.Overview.Unclaimed) {
		page.Unclaimed = append(page.Unclaimed, named{name, n})
	}
	slices.SortFunc(page.Unclaimed, func(a, b named) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	page.OtherHolders = otherHolders(all, membersOf(page.Overview.Replicas))
	page.Title = page.headline()
	return answer{http.StatusOK, "overview.html", page}
}

// driverRows returns all drivers, the worst first, then by name.
func (p *pages) driverRows(now time.Time) []driverRow {
	var all []driverRow
	for _, d := range p.hub.drivers() {
		h := p.metrics.history(d.Name, now)
		all = append(all, driverRow{d, newSpark(&h)})
	}
	slices.SortStableFunc(all, func(a, b driverRow) int { return a.Health.State.Compare(b.Health.State) })
	return all
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
	texts := []string{d.Name, d.State, d.Reason, d.Mode, d.Source, d.Endpoint, d.Version, d.Lease.Holder}
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

// otherHolders returns the holders of drivers' leases that are not replicas of the hub.
func otherHolders(all []driverRow, members map[string]bool) []Replica {
	held := map[string][]string{}
	for _, j := range all {
		if h := j.Lease.Holder; h != "" && !members[h] {
			held[h] = append(held[h], j.Name)
		}
	}
	var found []Replica
	for identity, drivers := range held {
		found = append(found, Replica{Identity: identity, Drivers: drivers})
	}
	return sortedReplicas(found)
}
