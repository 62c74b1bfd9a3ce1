package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

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

// callsOf counts the calls of a caller that change something.
func (cs callers) callsOf(caller string, b fakecsi.Books) (n int) {
	for _, c := range slices.Concat(b.Calls, b.Running) {
		if c.Volume != "" && cs[c.Peer] == caller {
			n++
		}
	}
	return n
}

// takenOver counts the detaches by a caller of what another one had attached.
func (cs callers) takenOver(caller string, b fakecsi.Books) (n int) {
	publishers := map[fakecsi.VolumeNode]string{}
	for _, c := range b.Calls {
		at := fakecsi.VolumeNode{Volume: c.Volume, Node: c.Node}
		switch {
		case !c.Changed:
		case c.Method == fakecsi.ControllerPublishVolume:
			publishers[at] = cs[c.Peer]
		case cs[c.Peer] == caller && publishers[at] != caller:
			n++
		}
	}
	return n
}

// hubFaults returns the violations of the hub that no rule allows. killed are the times at which a hub was killed.
func (cs callers) hubFaults(b fakecsi.Books, killed []time.Time) (faults []string) {
	for _, v := range b.Violations {
		i := slices.IndexFunc(b.Calls, func(c fakecsi.Call) bool { return c.ID == v.Call })
		if i < 0 || cs[b.Calls[i].Peer] == "" && !(v.Rule == safety.OneNode && cs.couldNotKnow(b, v, killed)) {
			faults = append(faults, fmt.Sprintf("%+v: %s", v, cs.historyOf(b, v.Volume, v.Time)))
		}
	}
	return faults
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
