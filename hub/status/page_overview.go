package status

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// mostTrouble is how many VolumeAttachments in trouble the first page shows.
const mostTrouble = 10

// overviewPage is the first page: a row for each driver.
type overviewPage struct {
	frame
	Query        string
	State        string
	States       []string // choices of the filter
	Drivers      []judged
	Known        int // drivers, also those that the filter hides
	Broken       int // likewise
	Attention    int
	Standby      int
	Attachments  attachmentTotals
	Table        attachmentTable // of those in trouble, the worst first
	Unclaimed    []named
	OtherHolders []Replica // holders of leases that are not replicas
}

// Severities returns the choices of the filter beside States.
func (overviewPage) Severities() []string {
	return append([]string{problems}, severities[:]...)
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
	all := p.judged(page.frame, attachments)
	var by [len(severities)]int
	for _, j := range all {
		by[j.Severity]++
		page.States = append(page.States, j.State)
		if matchesDriver(j, page.Query, page.State) {
			page.Drivers = append(page.Drivers, j)
		}
	}
	slices.Sort(page.States)
	page.States = slices.Compact(page.States)
	page.Known, page.Broken, page.Attention, page.Standby = len(all), by[broken], by[attention], by[standby]
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

// judged returns all drivers with their severities, the worst first, then by name.
func (p *pages) judged(f frame, attachments []Attachment) []judged {
	members, longest := membersOf(f.Overview.Replicas), oldestCalls(attachments)
	var all []judged
	for _, d := range p.hub.drivers() {
		all = append(all, judge(d, p.metrics.history(d.Name, f.Now), members, longest[d.Name], f.Now))
	}
	slices.SortStableFunc(all, func(a, b judged) int { return cmp.Compare(a.Severity, b.Severity) })
	return all
}

// problems is the filter for drivers that are broken or need attention.
const problems = "problems"

// matchesDriver reports whether a driver has all words of text in its texts, and has the state or
// the severity.
func matchesDriver(j judged, text, state string) bool {
	switch state {
	case "", j.State, j.Severity.String():
	case problems:
		if j.Severity > attention {
			return false
		}
	default:
		return false
	}
	return matchesText(text, j.Name, j.State, j.Reason, j.Mode, j.Source, j.Endpoint, j.Version, j.Lease.Holder, strings.Join(j.Notes, " "))
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
func otherHolders(all []judged, members map[string]bool) []Replica {
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
