package volume

import "time"

// permit lets one attach to a full node go.
type permit int8

const (
	noPermit permit = iota
	// forPlace: a volume was detached from the node.
	forPlace
	// forTry: the node may have places again. If the attach succeeds, the next one goes: a chain, until the driver
	// refuses one.
	forTry
)

// fullNode is what is known of a node on which the driver has refused a publish with ResourceExhausted. By the CSI
// spec, further publishes fail until a volume is detached from the node. It decides how many of the attaches that
// wait there may go. It is pure.
//
// A permit is never lost: an attach takes it, and succeeds, is refused, or gives it back.
type fullNode struct {
	since   time.Time // when the driver refused the first publish
	places  int       // volumes that were detached since, for each of which an attach may go
	next    bool      // one attach may go with forTry
	tries   bool      // an attach with forTry has gone, and has not ended
	changed bool      // the node has changed since that attach has gone
	refused int       // forTry, in a row
	probe   time.Time // when an attach may go without a sign of a free place
	fresh   uint64    // step of the Table when the node became full, or changed
}

// pauses returns how long the fallback waits after a number of refusals in a row.
type pauses func(refused int) time.Duration

// newFullNode returns a node on which a publish was refused now. detached is how many volumes were detached from it
// since that publish was started: the answer may be from before.
func newFullNode(now time.Time, detached int, pause pauses) fullNode {
	return fullNode{since: now, places: detached, refused: 1, probe: now.Add(pause(1))}
}

// offers returns the permit that an attach may take now, noPermit for none.
func (n *fullNode) offers(now time.Time) permit {
	switch {
	case n.places > 0:
		return forPlace
	case !n.tries && (n.next || !now.Before(n.probe)):
		return forTry
	}
	return noPermit
}

// take notes that an attach has taken a permit.
func (n *fullNode) take(p permit) {
	switch p {
	case forPlace:
		n.places--
	case forTry:
		n.next, n.tries = false, true
	}
}

// giveBack notes that an attach did not use its permit: it failed for another reason, or did not call.
func (n *fullNode) giveBack(p permit) {
	switch p {
	case forPlace:
		n.places++
	case forTry:
		n.next, n.tries, n.changed = true, false, false
	}
}

// succeed notes that the publish of an attach with a permit has succeeded.
func (n *fullNode) succeed(p permit) {
	if p == forTry {
		n.next, n.tries, n.changed, n.refused = true, false, false, 0
	}
}

// refuse notes that the driver has refused the publish of an attach with a permit.
func (n *fullNode) refuse(p permit, now time.Time, pause pauses) {
	switch {
	case p == forPlace:
		// The driver may refuse this volume alone. Another one is tried soon.
		n.refused = 0
	case p != forTry:
		return
	case n.changed:
		n.giveBack(p) // the answer may be from before the change
		return
	default:
		n.tries = false
	}
	n.refused++
	n.probe = now.Add(pause(n.refused))
}

// detach notes that a volume was detached from the node.
func (n *fullNode) detach() { n.places++ }

// change notes that the node's limit or the driver's registration on the node has changed.
func (n *fullNode) change(step uint64) {
	n.refused, n.fresh = 0, step
	if n.tries {
		n.changed = true
	} else {
		n.next = true
	}
}

// isOver reports whether the node counts as full no more, given that no attach waits there and none is in flight.
func (n *fullNode) isOver(now time.Time) bool {
	return !n.tries && (n.next || !now.Before(n.probe))
}
