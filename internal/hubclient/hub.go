package hubclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// maxAnswer bounds what is read of one answer, in bytes: a hub with 1000 drivers sends less.
	maxAnswer = 64 << 20
	// volumesPage is how many VolumeAttachments are requested at once.
	volumesPage = 2000
)

// Hub asks the replicas of a hub. Its methods may be called from any goroutine.
type Hub struct{ replicas []*replica }

// replica is one process of a hub.
type replica struct {
	name   string
	base   *url.URL
	client http.Client
	err    error // why it cannot be asked
}

// Close ends all connections.
func (h *Hub) Close() {
	for _, r := range h.replicas {
		r.client.CloseIdleConnections()
	}
}

// each calls f for all replicas at once.
func (h *Hub) each(f func(i int, r *replica)) {
	var asking sync.WaitGroup
	for i, r := range h.replicas {
		asking.Go(func() { f(i, r) })
	}
	asking.Wait()
}

// View asks all replicas and merges their answers. A replica that does not answer is in the
// View with its error.
func (h *Hub) View(ctx context.Context) View {
	replicas := make([]Replica, len(h.replicas))
	h.each(func(i int, r *replica) {
		replicas[i] = Replica{Replica: r.name}
		var drivers status.DriverList
		err := r.get(ctx, "/api/v1/overview", nil, &replicas[i].Overview)
		if err == nil {
			err = r.get(ctx, "/api/v1/drivers", nil, &drivers)
		}
		if err != nil {
			replicas[i] = Replica{Replica: r.name, Error: err.Error()}
		}
		replicas[i].Drivers = drivers.Drivers
	})
	return Merge(replicas)
}

// Driver asks one replica, by its name in the View, for a driver with its checklist.
func (h *Hub) Driver(ctx context.Context, name, driver string) (*status.Driver, error) {
	i := slices.IndexFunc(h.replicas, func(r *replica) bool { return r.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no replica %s", name)
	}
	var d status.Driver
	return &d, h.replicas[i].get(ctx, "/api/v1/drivers/"+driver, nil, &d)
}

// Volumes passes the VolumeAttachments that a filter selects to take, in no order, each once: as the replica
// sees it that reported its driver in the View. Those of a driver that no replica serves come from the first
// replica that knows them. take is called by one goroutine at a time. The error says what could not be
// listed; everything else was passed.
func (h *Hub) Volumes(ctx context.Context, v View, f status.AttachmentFilter, take func(status.Attachment)) error {
	query := url.Values{"limit": {strconv.Itoa(volumesPage)}, "driver": {f.Driver}, "node": {f.Node}, "name": {f.Name},
		"state": {status.Joined(f.States, ",")}, "health": {status.Joined(f.Health, ",")}}
	source := map[string]string{} // of the VolumeAttachments of a driver
	for _, d := range v.Drivers {
		source[d.Name] = d.Replica
	}
	var mu sync.Mutex
	unserved := map[string]bool{} // names of those that no replica serves, once they are passed
	errs := make([]error, len(h.replicas))
	h.each(func(i int, r *replica) {
		if slices.ContainsFunc(v.Replicas, func(seen Replica) bool { return seen.Replica == r.name && seen.Error != "" }) {
			return // the View says so
		}
		errs[i] = r.pages(ctx, maps.Clone(query), func(a status.Attachment) {
			mu.Lock()
			defer mu.Unlock()
			from, served := source[a.Driver]
			if served && from != r.name || unserved[a.Name] {
				return
			}
			if !served {
				unserved[a.Name] = true
			}
			take(a)
		})
	})
	return errors.Join(errs...)
}

// pages passes the VolumeAttachments of all pages to take.
func (r *replica) pages(ctx context.Context, query url.Values, take func(status.Attachment)) error {
	for {
		var list status.AttachmentList
		if err := r.get(ctx, "/api/v1/attachments", query, &list); err != nil {
			return fmt.Errorf("list the VolumeAttachments of %s: %w", r.name, err)
		}
		for _, a := range list.Attachments {
			take(a)
		}
		if list.Continue <= query.Get("continue") { // the last page, or no hub: names grow from page to page
			return nil
		}
		query.Set("continue", list.Continue)
	}
}

// get requests a path and decodes the JSON answer.
func (r *replica) get(ctx context.Context, path string, query url.Values, into any) error {
	if r.err != nil {
		return r.err
	}
	target := r.base.JoinPath(path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return cmp.Or(errors.Unwrap(err), err) // without the URL, which the caller names
	}
	defer answer.Body.Close()
	body := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode != http.StatusOK {
		var failure struct{ Error string }
		_ = body.Decode(&failure) // what is no hub has another body
		return errors.New(diagnosis.Because(fmt.Sprintf("get %s: %s", path, answer.Status), failure.Error))
	}
	if err := body.Decode(into); err != nil {
		return fmt.Errorf("get %s: it does not answer as a csi-attach-hub: %w", path, err)
	}
	return nil
}
