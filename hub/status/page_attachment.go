package status

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// attachmentPage is everything about one VolumeAttachment.
type attachmentPage struct {
	frame
	Attachment
	Served    *Driver // nil if its driver is not served
	Diagnoses []diagnosis.Diagnosis
	Timeline  []step
}

func (p *pages) attachment(r *http.Request) answer {
	filter := AttachmentFilter{Name: r.PathValue("name")}
	found := p.source.Attachments(filter)
	i := slices.IndexFunc(found, filter.Match)
	if i < 0 {
		return p.fail(r, http.StatusNotFound, fmt.Sprintf("There is no VolumeAttachment %q: it was detached and deleted, or never made.", sanitize(filter.Name, shortText)))
	}
	page := attachmentPage{frame: p.frame(r, filter.Name), Attachment: found[i]}
	drivers := p.source.Drivers()
	if i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == page.Driver }); i >= 0 {
		page.Served = &drivers[i]
	}
	in := DiagnosisInput{Attachment: page.Attachment, Driver: page.Served, Replicas: page.Overview.Replicas, Conflicts: page.Overview.Config.Conflicts, Now: page.Now}
	page.Diagnoses, page.Timeline = Diagnose(in), timeline(in)
	return answer{http.StatusOK, "attachment.html", page}
}
