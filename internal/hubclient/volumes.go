package hubclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// volumesPage is how many VolumeAttachments are asked for at once.
const volumesPage = 2000

// Volumes passes the VolumeAttachments that a filter selects to take, in no order, each once: as the replica
// sees it that reported its driver in the View. Those of a driver that no replica serves come from the first
// replica that knows them. take is called by one goroutine at a time. The error says what could not be
// listed; everything else was passed.
func (h *Hub) Volumes(ctx context.Context, v View, f status.AttachmentFilter, take func(status.Attachment)) error {
	var mu sync.Mutex
	passed := map[string]bool{} // names of those that no replica serves
	var asking errgroup.Group
	asking.SetLimit(maxRequests)
	var errs []error
	ask := func(l listing) {
		asking.Go(func() error {
			err := l.pages(ctx, func(page []status.Attachment) {
				mu.Lock()
				defer mu.Unlock()
				for _, a := range page {
					if l.driver == nil && (v.Driver(a.Driver) != nil || passed[a.Name]) {
						continue
					}
					if l.driver == nil {
						passed[a.Name] = true
					}
					take(a)
				}
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
			return nil
		})
	}
	for i := range v.Drivers {
		d := &v.Drivers[i]
		if r := h.replica(d.Replica); r != nil && (f.Driver == "" || f.Driver == d.Name) && !(onlyTrouble(f) && d.quiet()) {
			ask(listing{replica: r, filter: f, driver: d})
		}
	}
	if len(f.States) == 0 || slices.Contains(f.States, status.Unclaimed) {
		for _, r := range v.Replicas {
			if asked := h.replica(r.Replica); asked != nil && r.Error == "" {
				ask(listing{replica: asked, filter: f})
			}
		}
	}
	_ = asking.Wait() // errors are in errs
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// replica returns a replica by its name in the View, nil if there is none.
func (h *Hub) replica(name string) *replica {
	for _, r := range h.replicas {
		if r.name == name {
			return r
		}
	}
	return nil
}

// onlyTrouble reports whether a filter selects only VolumeAttachments that somebody should look at.
func onlyTrouble(f status.AttachmentFilter) bool {
	return len(f.Health) > 0 && !slices.ContainsFunc(f.Health, func(s status.HealthState) bool { return !status.Health{State: s}.Needs() })
}

// quiet reports whether no VolumeAttachment of the driver can be in trouble. It saves a request for each of
// the many drivers that are well. A replica that does not work for a driver does not know its work.
func (d *Driver) quiet() bool {
	w := d.Work()
	return d.Lease.Mine && !d.Health.Needs() && w.Queued+w.Delayed+w.Running+w.Stuck == 0
}

// listing lists the VolumeAttachments of one driver, or those that no replica serves.
type listing struct {
	replica *replica
	filter  status.AttachmentFilter
	driver  *Driver // nil: VolumeAttachments of drivers that no replica serves
}

// pages passes page after page to take.
func (l listing) pages(ctx context.Context, take func([]status.Attachment)) error {
	query := l.query()
	for {
		var list status.AttachmentList
		if err := l.replica.get(ctx, "/api/v1/attachments", query, &list); err != nil {
			return fmt.Errorf("list the VolumeAttachments of %s: %s: %w", l.what(), l.replica.name, err)
		}
		take(slices.DeleteFunc(list.Attachments, func(a status.Attachment) bool { return !l.selects(a) }))
		if list.Continue <= query.Get("continue") { // the last page, or no hub: names grow from page to page
			return nil
		}
		query.Set("continue", list.Continue)
	}
}

func (l listing) what() string {
	if l.driver == nil {
		return "drivers that are not served"
	}
	return "driver " + l.driver.Name
}

// query returns the query of the first page.
func (l listing) query() url.Values {
	query := url.Values{"limit": {strconv.Itoa(volumesPage)}}
	set := func(key, value string) {
		if value != "" {
			query.Set(key, value)
		}
	}
	set("node", l.filter.Node)
	set("name", l.filter.Name)
	switch {
	case l.driver == nil:
		set("driver", l.filter.Driver)
		set("state", string(status.Unclaimed))
	default:
		set("driver", l.driver.Name)
		set("state", joined(l.filter.States))
		set("health", joined(l.filter.Health))
	}
	return query
}

func joined[T ~string](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = string(v)
	}
	return strings.Join(words, ",")
}

// selects reports whether the filter selects a VolumeAttachment.
func (l listing) selects(a status.Attachment) bool {
	return l.filter.Match(a) && (len(l.filter.Health) == 0 || slices.Contains(l.filter.Health, a.Health.State))
}
