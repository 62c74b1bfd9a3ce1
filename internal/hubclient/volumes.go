package hubclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// volumesPage is how many VolumeAttachments are requested at once.
const volumesPage = 2000

// Volumes passes the VolumeAttachments that a filter selects to take, in any order, each once: as the replica sees it
// that reported its driver in the View. The error says what could not be listed; all else was passed.
func (h *Hub) Volumes(ctx context.Context, v View, f status.AttachmentFilter, take func(status.Attachment)) error {
	var errs []error
	passed := map[string]bool{}
	for _, r := range h.replicas {
		listed, err := r.attachments(ctx, f)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, err))
		}
		for _, a := range listed {
			if d := v.Driver(a.Driver); passed[a.Name] || d != nil && d.Replica != r.name {
				continue
			}
			passed[a.Name] = true
			take(a)
		}
	}
	return errors.Join(errs...)
}

// attachments requests all pages.
func (r *replica) attachments(ctx context.Context, f status.AttachmentFilter) ([]status.Attachment, error) {
	query := url.Values{"limit": {strconv.Itoa(volumesPage)}}
	for key, value := range map[string]string{"driver": f.Driver, "node": f.Node, "name": f.Name, "state": joined(f.States), "health": joined(f.Health)} {
		if value != "" {
			query.Set(key, value)
		}
	}
	var all []status.Attachment
	for {
		var page status.AttachmentList
		if err := r.get(ctx, "/api/v1/attachments", query, &page); err != nil {
			return all, err
		}
		all = append(all, page.Attachments...)
		if page.Continue <= query.Get("continue") { // the last page: names grow from page to page
			return all, nil
		}
		query.Set("continue", page.Continue)
	}
}

func joined[T ~string](words []T) string {
	plain := make([]string, len(words))
	for i, w := range words {
		plain[i] = string(w)
	}
	return strings.Join(plain, ",")
}
