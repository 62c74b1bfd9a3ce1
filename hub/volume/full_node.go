package volume

import "time"

// permit lets one attach to a full node go. From forTry on, it is a try: forTry and the round of the node.
type permit int32

const (
	noPermit permit = iota
	// forPlace: a volume was detached from the node.
	forPlace
	// forTry: the node may have places again. Each try that succeeds lets two more go, until the driver refuses one.
	forTry
)

// fullNode is what is known of a node on which the driver has refused a publish with ResourceExhausted. By the CSI
// spec, further publishes fail until a volume is detached from the node. It decides how many of the attaches that
// wait there may go. It is pure.
//
// A permit is not lost: an attach takes it, and succeeds, is refused, or gives it back. Tries of an earlier round are void.
type fullNode struct {
	since   time.Time // when the driver refused the first publish
	places  int       // volumes that were detached since, for each of which an attach may go
	next    int       // tries that may go now
	tries   int       // tries that have gone, and have not ended
	round   permit    // counts refused tries and changes of the node: a try of an earlier round says nothing about now
	refused int       // tries, in a row
	probe   time.Time // when a try may go without a sign of a free place
	only    string    // the only entry that was refused since refused was 0; "" if there are several
	soon    time.Time // when a try of another entry than only may go
	fresh   uint64    // step of the Table when the node became full, or changed
}

// pauses returns how long the fallback waits after a number of refusals in a row.
type pauses func(refused int) time.Duration

// newFullNode returns a node on which the publish of an entry was refused now. detached is how many volumes were
// detached from it since that publish was started: the answer may be from before.
func newFullNode(name string, now time.Time, detached int, pause pauses) fullNode {
	n := fullNode{since: now, places: detached, only: name}
	n.wait(now, pause)
	return n
}

// wait notes one more refusal in a row.
func (n *fullNode) wait(now time.Time, pause pauses) {
	n.refused++
	n.probe = now.Add(pause(n.refused))
	n.soon = n.probe
	if first := now.Add(pause(1)); first.Before(n.soon) {
		n.soon = first
	}
}

// tryAt returns when a try may go without a sign of a free place. others says that others than the only one that was
// refused wait: the driver may refuse that volume alone.
func (n *fullNode) tryAt(others bool) time.Time {
	if others && n.only != "" {
		return n.soon
	}
	return n.probe
}

// offers returns the permit that an attach may take now, noPermit for none.
func (n *fullNode) offers(now time.Time, others bool) permit {
	switch {
	case n.places > 0:
		return forPlace
	case n.next > 0, n.tries == 0 && !now.Before(n.tryAt(others)):
		return forTry + n.round
	}
	return noPermit
}

// take notes that an attach has taken a permit.
func (n *fullNode) take(p permit) {
	switch {
	case p == forPlace:
		n.places--
	case p >= forTry:
		n.next, n.tries = max(0, n.next-1), n.tries+1
	}
}

// giveBack notes that an attach did not use its permit: it failed for another reason, or did not call.
func (n *fullNode) giveBack(p permit) {
	if p == forPlace {
		n.places++
	} else if n.endTry(p) {
		n.next++
	}
}

// endTry notes that an attach has ended. It reports whether that was a try of this round.
func (n *fullNode) endTry(p permit) bool {
	if p >= forTry {
		n.tries--
	}
	return p == forTry+n.round
}

// succeed notes that the publish of an attach with a permit has succeeded.
func (n *fullNode) succeed(p permit) {
	if n.endTry(p) {
		n.next, n.refused = n.next+2, 0
	}
}

// refuse notes that the driver has refused the publish of an entry.
func (n *fullNode) refuse(name string, p permit, now time.Time, pause pauses) {
	if n.refused == 0 {
		n.only = name // the first one since the last success
	} else if n.only != name {
		n.only = ""
	}
	switch {
	case p == forPlace:
		n.refused = 0 // the driver may refuse this volume alone: another one is tried soon
	case n.endTry(p):
		n.round, n.next = n.round+1, 0
	default:
		return
	}
	n.wait(now, pause)
}

// detach notes that a volume was detached from the node.
func (n *fullNode) detach() { n.places++ }

// change notes that the node's limit or the driver's registration on the node has changed.
func (n *fullNode) change(step uint64) {
	n.round++
	n.next, n.refused, n.fresh = 1, 0, step
}

// isOver reports whether the node counts as full no more, given that no attach waits there and none is in flight.
func (n *fullNode) isOver(now time.Time) bool {
	return n.tries == 0 && (n.next > 0 || !now.Before(n.probe))
}
