package statustable

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// driverTable writes a line for each driver, the worst first.
func (r Report) driverTable(out *strings.Builder, style Style) {
	g := grid{head: []string{"DRIVER", "HEALTH", "STATE", "MODE", "LEADER", "WAITING", "RUNNING", "FAILING", "STUCK", "OLDEST", "REASON"},
		optional: []string{"MODE", "LEADER", "RUNNING", "STATE"}, beside: 2, maxLines: 3}
	members := r.Members()
	for _, d := range slices.SortedFunc(slices.Values(r.View.Drivers), worseDriver) {
		w := d.Work()
		g.rows = append(g.rows, row{[]cell{{text: d.Name}, {string(d.Health.State), colorOf(d.Health.State)}, {text: d.State}, {text: d.Mode}, {text: leader(d, members)},
			{text: fmt.Sprint(w.Queued + w.Delayed)}, {text: fmt.Sprint(w.Running)}, {text: fmt.Sprint(w.Failing)}, {text: fmt.Sprint(w.Stuck)},
			{text: oldest(w, r.AsOf)}}, reasons(d.Health, r.AsOf)})
	}
	g.write(out, style, true)
}

// reasons returns all reasons of a driver's health, the worst first.
func reasons(h status.Health, now time.Time) []string {
	var texts []string
	for _, r := range h.Reasons {
		texts = append(texts, r.Line("driver", now))
	}
	return texts
}

// oldest returns the age of the oldest work: it waits, or its call is in flight.
func oldest(w status.Lane, now time.Time) string {
	since := w.OldestSince
	if call := w.OldestCall.Since; !call.IsZero() && (since.IsZero() || call.Before(since)) {
		since = call
	}
	if since.IsZero() {
		return ""
	}
	return diagnosis.Length(now.Sub(since))
}

// leader returns the identity of the leader of a driver, or the name of its Pod if it is the
// only replica there: people know the Pod.
func leader(d hubclient.Driver, members []status.Replica) string {
	host, _, _ := strings.Cut(d.Leader, "_")
	known := false
	for _, m := range members {
		if m.Identity == d.Leader {
			known = true
		} else if name, _, _ := strings.Cut(m.Identity, "_"); name == host {
			return d.Leader // several on one host
		}
	}
	if !known || host == "" {
		return d.Leader
	}
	return host
}
