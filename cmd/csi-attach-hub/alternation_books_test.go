package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// callers are the names of the processes that call the driver, by process ID. Hubs have none.
type callers map[int]string

const csiAttacher = "csi-attacher"

// publications are the volumes that are attached by the books, each with the call that has attached it.
func publications(b fakecsi.Books) map[fakecsi.VolumeNode]fakecsi.Call {
	last := map[fakecsi.VolumeNode]fakecsi.Call{}
	for _, c := range b.Calls {
		if at := (fakecsi.VolumeNode{Volume: c.Volume, Node: c.Node}); c.Changed && c.Method == fakecsi.ControllerPublishVolume && b.IsAttached(at.Volume, at.Node) {
			last[at] = c
		}
	}
	return last
}

// work is what one attacher has done, by the books.
type work struct {
	publishes, unpublishes, failed int
	takenOver                      int // detaches of what the other one had attached
	violations                     map[safety.Rule]int
}

func (w *work) String() string {
	return fmt.Sprintf("%d publishes and %d unpublishes (%d of what the other one had attached), %d of them failed, violations %v",
		w.publishes, w.unpublishes, w.takenOver, w.failed, w.violations)
}

// workOf returns the work of the hub ("") and of csi-attacher.
func (cs callers) workOf(b fakecsi.Books) map[string]*work {
	all := map[string]*work{"": {violations: map[safety.Rule]int{}}, csiAttacher: {violations: map[safety.Rule]int{}}}
	byCall, publishers := map[uint64]string{}, map[fakecsi.VolumeNode]string{}
	for _, c := range b.Calls {
		caller := cs[c.Peer]
		byCall[c.ID] = caller
		w, at := all[caller], fakecsi.VolumeNode{Volume: c.Volume, Node: c.Node}
		switch c.Method {
		case fakecsi.ControllerPublishVolume:
			w.publishes++
			if c.Changed {
				publishers[at] = caller
			}
		case fakecsi.ControllerUnpublishVolume:
			w.unpublishes++
			if c.Changed && publishers[at] != caller {
				w.takenOver++
			}
		default:
			continue
		}
		if c.Code != codes.OK {
			w.failed++
		}
	}
	for _, v := range b.Violations {
		all[byCall[v.Call]].violations[v.Rule]++
	}
	return all
}

// hubFaults returns the violations of the hub that no rule allows, and counts the allowed ones. killed
// are the times at which a hub was killed.
func (cs callers) hubFaults(b fakecsi.Books, killed []time.Time) (faults []string, allowed int) {
	for _, v := range b.Violations {
		i := slices.IndexFunc(b.Calls, func(c fakecsi.Call) bool { return c.ID == v.Call })
		if i >= 0 && cs[b.Calls[i].Peer] != "" {
			continue
		}
		if i >= 0 && v.Rule == safety.OneNode && cs.couldNotKnow(b, v, killed) {
			allowed++
			continue
		}
		faults = append(faults, fmt.Sprintf("%+v: %s", v, cs.historyOf(b, v.Volume, v.Time)))
	}
	return faults, allowed
}

// couldNotKnow reports whether another process has attached the volume of a violation to each other node:
// csi-attacher, or a hub that was killed since. Its VolumeAttachment is gone when the next one of the volume is
// made, and it may vanish while its volume is attached (kubernetes/kubernetes issue 124749). Only the process that
// made the call surely knows of it, and the others from the driver's next listings.
func (cs callers) couldNotKnow(b fakecsi.Books, v fakecsi.Violation, killed []time.Time) bool {
	for _, other := range v.Nodes[1:] {
		var last fakecsi.Call
		for _, c := range b.Calls {
			if c.Volume == v.Volume && c.Node == other && c.Changed && c.Method == fakecsi.ControllerPublishVolume && c.Start.Before(v.Time) && c.Start.After(last.Start) {
				last = c
			}
		}
		died := slices.ContainsFunc(killed, func(at time.Time) bool { return last.Start.Before(at) && at.Before(v.Time) })
		if last.ID == 0 || cs[last.Peer] == "" && !died {
			return false
		}
	}
	return true
}

// historyOf tells the last calls for a volume before and shortly after a time.
func (cs callers) historyOf(b fakecsi.Books, volume string, at time.Time) string {
	var lines []string
	for _, c := range b.Calls {
		if c.Volume == volume && c.Start.After(at.Add(-10*time.Second)) && c.Start.Before(at.Add(2*time.Second)) {
			lines = append(lines, fmt.Sprintf("\n  %s to %s: %q %s on %s: %s, changed %v, abandoned %v", c.Start.Format("15:04:05.000"), c.End.Format("05.000"),
				cs[c.Peer], c.Method, c.Node, c.Code, c.Changed, c.Abandoned))
		}
	}
	return strings.Join(lines, "")
}
