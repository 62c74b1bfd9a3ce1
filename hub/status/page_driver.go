package status

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// mostOpen is how many rows of VolumeAttachments a driver's page shows.
const mostOpen = 25

// driverPage is the page of one driver.
type driverPage struct {
	frame
	driverRow
	Attachments attachmentTotals
	Table       volumeTable  // VolumeAttachments for which an operation is due
	Failed      []failureRow // the latest first
}

// ShowsConnectionError reports whether the last error of the connection is on the page beside the reasons of
// the health: one of them may say the same.
func (p driverPage) ShowsConnectionError() bool {
	text := p.ConnectionError.Text
	return text != "" && !slices.ContainsFunc(p.Health.Reasons, func(r Reason) bool { return strings.Contains(r.Detail, text) })
}

func (p *pages) driver(r *http.Request) answer {
	name := r.PathValue("name")
	f := p.frame(r, name)
	drivers := p.hub.drivers()
	i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == name })
	if i < 0 {
		return p.fail(r, http.StatusNotFound, fmt.Sprintf("Driver %q is not served here. Check the spelling of its name and the configuration.", sanitize(name, shortText)))
	}
	drivers[i].Checklist = p.hub.source.Checklist(r.Context(), name)
	all := p.hub.attachments(AttachmentFilter{Driver: name})
	var due []Attachment
	for _, a := range all {
		if open(a) {
			due = append(due, a)
		}
	}
	WorstFirst(due)
	rows := collapse(volumeRows(due, drivers[i:i+1], f.Overview, f.Now))
	return answer{http.StatusOK, "driver.html", driverPage{
		frame:       f,
		driverRow:   p.rowOf(drivers[i], f.Now),
		Attachments: totals(all),
		Table:       volumeTable{frame: f, Rows: rows[:min(len(rows), mostOpen)], OneDriver: true},
		Failed:      failureRows(drivers[i].Failures, all),
	}}
}
