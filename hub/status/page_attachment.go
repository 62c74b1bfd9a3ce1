package status

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// attachmentPage is the page of one VolumeAttachment.
type attachmentPage struct {
	frame
	Attachment
	Served    *Driver // nil if its driver is not served
	Diagnoses []diagnosis.Diagnosis
}

// ShowsLastError reports whether the last error has a place of its own: no diagnosis has all of it.
func (p attachmentPage) ShowsLastError() bool {
	text := p.LastError
	own := text
	if len(p.Elsewhere) > 0 {
		own, _, _ = strings.Cut(text, "; "+DriverReports)
	}
	return text != "" && !slices.ContainsFunc(p.Diagnoses, func(d diagnosis.Diagnosis) bool {
		return d.Detail != "" && strings.HasSuffix(diagnosis.Clause(own), diagnosis.Clause(d.Detail))
	})
}

func (p *pages) attachment(r *http.Request) answer {
	filter := AttachmentFilter{Name: r.PathValue("name")}
	found := p.hub.attachments(filter)
	if len(found) == 0 {
		return p.fail(r, http.StatusNotFound, fmt.Sprintf("VolumeAttachment %q does not exist. It may have been detached and deleted.", sanitize(filter.Name, shortText)))
	}
	a := found[0]
	page := attachmentPage{frame: p.frame(r, a.Title()), Attachment: a, Served: p.hub.driver(a.Driver)}
	in := DiagnosisInput{Attachment: a, Driver: page.Served, Replicas: page.Overview.Replicas, Conflicts: page.Overview.Config.Conflicts, Now: page.Now}
	page.Diagnoses = Diagnose(in)
	return answer{http.StatusOK, "attachment.html", page}
}
