package status

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// listPage is how many VolumeAttachments are on one page.
const listPage = 100

// stateOpen selects all that are neither attached nor idle.
const stateOpen = "open"

// attachmentsPage is a list of VolumeAttachments.
type attachmentsPage struct {
	frame
	Driver, State, Node, Query string
	Drivers                    []string // choices of the filter
	Table                      attachmentTable
	From, To, Total            int    // the position of the rows in all that match, from 1
	First, Previous, Next      string // URLs of the other pages; empty if there are none
}

// attachmentTable has VolumeAttachments as rows of a table.
type attachmentTable struct {
	frame
	Rows      []Attachment
	OneDriver bool // all rows are of one driver: the column is left out
}

// States returns the choices of the filter.
func (attachmentsPage) States() []AttachmentState { return AttachmentStates }

func (p *pages) attachments(r *http.Request) answer {
	q := r.URL.Query()
	page := attachmentsPage{frame: p.frame(r, "VolumeAttachments"), Driver: q.Get("driver"), State: q.Get("state"), Node: q.Get("node"), Query: q.Get("q")}
	if page.State != "" && page.State != stateOpen && !slices.Contains(AttachmentStates, AttachmentState(page.State)) {
		return p.fail(r, http.StatusBadRequest, fmt.Sprintf("The state %q is none of %s, %s.", sanitize(page.State, shortText), stateOpen, joined(AttachmentStates)))
	}
	page.Drivers = p.attachers(page.Overview, page.Driver)
	filter := AttachmentFilter{Driver: page.Driver, Node: page.Node}
	if page.State != stateOpen && page.State != "" {
		filter.States = []AttachmentState{AttachmentState(page.State)}
	}
	found := slices.DeleteFunc(p.hub.attachments(filter), func(a Attachment) bool {
		return page.State == stateOpen && !open(a) ||
			!matchesText(page.Query, a.Name, a.Driver, a.Node, a.PersistentVolume, a.VolumeHandle, a.LastError, a.WaitsFor)
	})
	page.paginate(found, q.Get("after"))
	return answer{http.StatusOK, "attachments.html", page}
}

// paginate sets the rows of the page that begins after a name.
func (p *attachmentsPage) paginate(found []Attachment, after string) {
	from := sortAfter(found, after)
	to := min(from+listPage, len(found))
	p.Table = attachmentTable{frame: p.frame, Rows: found[from:to], OneDriver: p.Driver != ""}
	p.From, p.To, p.Total = from+1, to, len(found)
	if from > 0 {
		p.First = p.link("")
		p.Previous = p.First
		if from > listPage {
			p.Previous = p.link(found[from-listPage-1].Name)
		}
	}
	if to < len(found) {
		p.Next = p.link(found[to-1].Name)
	}
}

func (p *attachmentsPage) link(after string) string {
	return attachmentsURL("driver", p.Driver, "state", p.State, "node", p.Node, "q", p.Query, "after", after)
}

// attachers returns the choices of the filter: the served drivers, the attachers of unclaimed
// VolumeAttachments, and the driver in the query.
func (p *pages) attachers(o Overview, asked string) []string {
	names := map[string]bool{}
	for _, d := range p.hub.drivers() {
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
