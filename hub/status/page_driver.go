package status

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
)

// mostOpen is how many of its VolumeAttachments a driver's page shows.
const mostOpen = 25

// driverPage is the page of one driver.
type driverPage struct {
	frame
	driverRow
	Attachments attachmentTotals
	Table       attachmentTable // open VolumeAttachments, the worst first
}

func (p *pages) driver(r *http.Request) answer {
	name := r.PathValue("name")
	f := p.frame(r, name)
	attachments := p.hub.attachments(AttachmentFilter{Driver: name})
	drivers := p.driverRows(f.Now)
	i := slices.IndexFunc(drivers, func(d driverRow) bool { return d.Name == name })
	if i < 0 {
		return p.fail(r, http.StatusNotFound, fmt.Sprintf("There is no driver %q here: it is not configured, or its name is written in another way.", sanitize(name, shortText)))
	}
	return answer{http.StatusOK, "driver.html", driverPage{
		frame:       f,
		driverRow:   drivers[i],
		Attachments: totals(attachments),
		Table:       attachmentTable{frame: f, Rows: worst(attachments, urgency, mostOpen), OneDriver: true},
	}}
}

// urgency is the order of open VolumeAttachments.
var urgency = []AttachmentState{Stuck, Failing, Waiting, Unclaimed, Attaching, Detaching}

// worst returns at most a number of VolumeAttachments in some states: in the order of the states, then
// the oldest first.
func worst(all []Attachment, states []AttachmentState, most int) []Attachment {
	var found []Attachment
	for _, a := range all {
		if slices.Contains(states, a.State) {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b Attachment) int {
		return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
	})
	return found[:min(len(found), most)]
}
