package status

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// listPage is how many VolumeAttachments are on one page.
const listPage = 100

// stateOpen selects all for which an operation is due.
const stateOpen = "open"

// attachmentsPage is a list of VolumeAttachments.
type attachmentsPage struct {
	frame
	Driver, State, Health, Node, Query string
	Drivers                            []string // choices of the filter
	Table                              volumeTable
	From, To, Total                    int    // places of the rows in all that match, from 1
	First, Previous, Next              string // URLs of the other pages; empty if there are none
}

// States returns the choices of the filter, with their names.
func (p attachmentsPage) States() []choice {
	choices := []choice{{stateOpen, "all that are open"}}
	for _, s := range AttachmentStates {
		choices = append(choices, choice{string(s), string(s)})
	}
	return withAsked(choices, p.State)
}

// Healths returns the choices of the filter, with their names. A VolumeAttachment is never on standby.
func (p attachmentsPage) Healths() []choice {
	choices := []choice{{anyTrouble, problems}, {string(Broken), string(Broken)}, {string(Attention), string(Attention)}, {string(Fine), string(Fine)}}
	return withAsked(choices, p.Health)
}

// anyTrouble is the filter for the health of what needs attention.
const anyTrouble = string(Broken + "," + Attention)

// choice is a value of a filter with its name.
type choice struct{ Value, Name string }

// withAsked adds the value that is asked for, which may be a list, so that a form keeps it.
func withAsked(choices []choice, asked string) []choice {
	if asked == "" || slices.ContainsFunc(choices, func(c choice) bool { return c.Value == asked }) {
		return choices
	}
	return append(choices, choice{asked, asked})
}

func (p *pages) attachments(r *http.Request) answer {
	q := r.URL.Query()
	page := attachmentsPage{frame: p.frame(r, "VolumeAttachments"),
		Driver: q.Get("driver"), State: q.Get("state"), Health: q.Get("health"), Node: q.Get("node"), Query: q.Get("q")}
	filter := AttachmentFilter{Driver: page.Driver, Node: page.Node}
	var wrongState error
	if page.State != stateOpen {
		wrongState = choose(&filter.States, "state", page.State, AttachmentStates)
	}
	if err := errors.Join(wrongState, choose(&filter.Health, "health", page.Health, HealthStates)); err != nil {
		return p.fail(r, http.StatusBadRequest, sanitize(err.Error(), shortText))
	}
	drivers := p.hub.drivers()
	page.Drivers = choicesOf(drivers, page.Overview, page.Driver)
	found := slices.DeleteFunc(p.hub.attachments(filter), func(a Attachment) bool { return page.State == stateOpen && !open(a) })
	WorstFirst(found)
	rows := func(all []Attachment) []volumeRow { return volumeRows(all, drivers, page.Overview, page.Now) }
	if page.Query != "" { // only then is the reason of each of them needed
		all := rows(found)
		found = nil
		for _, r := range all {
			if r.matches(page.Query, page.Now) {
				found = append(found, r.Attachment)
			}
		}
	}
	from, to := page.paginate(found, parsePosition(q.Get("after")))
	page.Table = volumeTable{frame: page.frame, Rows: rows(found[from:to]), OneDriver: page.Driver != ""}
	return answer{http.StatusOK, "attachments.html", page}
}

// paginate finds the part of the sorted list that begins after a position, and the pages around it.
func (p *attachmentsPage) paginate(found []Attachment, after position) (from, to int) {
	from, _ = slices.BinarySearchFunc(found, after, func(a Attachment, after position) int {
		return cmp.Or(positionOf(a).compare(after), -1) // the position itself is before
	})
	to = min(from+listPage, len(found))
	p.From, p.To, p.Total = from+1, to, len(found)
	if from > 0 {
		p.First = p.link("")
		p.Previous = p.First
		if from > listPage {
			p.Previous = p.link(positionOf(found[from-listPage-1]).String())
		}
	}
	if to < len(found) {
		p.Next = p.link(positionOf(found[to-1]).String())
	}
	return from, to
}

func (p *attachmentsPage) link(after string) string {
	return attachmentsURL("driver", p.Driver, "state", p.State, "health", p.Health, "node", p.Node, "q", p.Query, "after", after)
}

// choicesOf returns the choices of the filter for drivers: those that are served, the attachers of unclaimed
// VolumeAttachments, and the driver in the query.
func choicesOf(drivers []Driver, o Overview, asked string) []string {
	names := map[string]bool{}
	for _, d := range drivers {
		names[d.Name] = true
	}
	for name := range bounded(o.Unclaimed) {
		names[name] = true
	}
	if asked != "" {
		names[asked] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// attachmentsURL returns the URL of a list of VolumeAttachments. pairs are keys and values in turn;
// empty values are left out.
func attachmentsURL(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return "/attachments"
	}
	return "/attachments?" + q.Encode()
}
