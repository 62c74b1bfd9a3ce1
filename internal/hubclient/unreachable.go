package hubclient

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// Unreachable is a driver that one replica cannot call while another replica can.
type Unreachable struct {
	Driver string `json:"driver"`
	Reason string `json:"reason"` // for people
}

// unreachable returns the drivers that only the replica of an answer cannot call. A driver that the replica
// has just begun or ends to serve is not among them.
func unreachable(a Answer, best map[string]Driver) []Unreachable {
	var found []Unreachable
	for _, d := range a.Drivers {
		if d.Up || !best[d.Name].Up {
			continue
		}
		h := d.Health
		if len(h.Reasons) == 0 || !h.Needs() || h.Reasons[0].Verdict == diagnosis.DriverStarting || h.Reasons[0].Verdict == diagnosis.DriverDraining {
			continue
		}
		found = append(found, Unreachable{d.Name, cmp.Or(h.Reasons[0].Detail, h.Text(a.Time))})
	}
	return found
}

// mostUnreachable is how many unreachable drivers of a replica are named on one line.
const mostUnreachable = 3

// unreachableText returns Unreachable as one line, "" if it is empty.
func (r Replica) unreachableText() string {
	if len(r.Unreachable) == 0 {
		return ""
	}
	var names []string
	for _, u := range r.Unreachable[:min(len(r.Unreachable), mostUnreachable)] {
		names = append(names, u.Driver)
	}
	all := strings.Join(names, ", ")
	if more := len(r.Unreachable) - len(names); more > 0 {
		all += fmt.Sprintf(" and %d more", more)
	}
	return diagnosis.Because(fmt.Sprintf("%s cannot call %s, another replica can", r.Replica, all), r.Unreachable[0].Reason)
}
