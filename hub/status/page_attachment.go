package status

import (
	"fmt"
	"net/http"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// attachmentPage is the page of one VolumeAttachment.
type attachmentPage struct {
	frame
	Attachment
	Served    *Driver // nil if its driver is not served
	Diagnoses []diagnosis.Diagnosis
	Timeline  []step
}

func (p *pages) attachment(r *http.Request) answer {
	filter := AttachmentFilter{Name: r.PathValue("name")}
	found := p.hub.attachments(filter)
	if len(found) == 0 {
		return p.fail(r, http.StatusNotFound, fmt.Sprintf("There is no VolumeAttachment %q: it was detached and deleted, or never made.", sanitize(filter.Name, shortText)))
	}
	page := attachmentPage{frame: p.frame(r, filter.Name), Attachment: found[0], Served: p.hub.driver(found[0].Driver)}
	in := DiagnosisInput{Attachment: page.Attachment, Driver: page.Served, Replicas: page.Overview.Replicas, Conflicts: page.Overview.Config.Conflicts, Now: page.Now}
	page.Diagnoses, page.Timeline = Diagnose(in), timeline(in)
	page.Health = HealthOfAttachment(in)
	return answer{http.StatusOK, "attachment.html", page}
}
