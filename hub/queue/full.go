package queue

import "time"

// permit lets one attach to a full node go. From forTry on, it is a try: forTry and the round of the node.
type permit int32

const (
	noPermit permit = iota
	forPlace        // a volume was detached from the node
	forTry          // the node may have places again
)

// fullNode is what is known of a node on which the driver has refused a publish with ResourceExhausted. By the CSI
// spec, further publishes fail until a volume is detached from the node. It decides how many of the attaches that
// wait there may go. It is pure.
//
// A permit is not lost: an attach takes it, and succeeds, is refused, or gives it back. A try of an earlier round says
// nothing about now.
type fullNode struct {
	since   time.Time // when the driver refused the first publish
	places  int       // volumes that were detached since, for each of which an attach may go
	width   int       // tries that may be in flight: 1, and one more for each that succeeds
	tries   int       // in flight
	round   permit    // counts refusals and changes of the node
	refused int       // tries, in a row
	until   time.Time // when a try may go without a sign of a free place
	only    string    // the only item that was refused since refused was 0; "" if there are several
	soon    time.Time // when a try of another item than only may go
}

// tryAt returns when a try of an item may go without a sign of a free place: the driver may refuse the only one that was
// refused alone.
func (n *fullNode) tryAt(name string) time.Time {
	if n.only != "" && n.only != name {
		return n.soon
	}
	return n.until
}

// nextTry returns when a try may go to the node without a sign of a free place, zero if one is in flight.
func (n *fullNode) nextTry(line []*Item) time.Time {
	switch {
	case n.tries > 0:
		return time.Time{}
	case len(line) > 0:
		return n.tryAt(line[0].Key.Name)
	}
	return n.until
}

// offer gives an attach a permit, noPermit if there is none now.
func (n *fullNode) offer(name string, now time.Time) permit {
	switch {
	case n.places > 0:
		n.places--
		return forPlace
	case n.tries < n.width && !now.Before(n.tryAt(name)):
		n.tries++
		return forTry + n.round
	}
	return noPermit
}

// giveBack notes that an attach did not use its permit: it failed for another reason, or did not call.
func (n *fullNode) giveBack(p permit) {
	if p == forPlace {
		n.places++
	}
	n.endTry(p)
}

// endTry notes that an attach has ended. It reports whether that was a try of this round.
func (n *fullNode) endTry(p permit) bool {
	if p < forTry {
		return false
	}
	n.tries--
	if p == forTry+n.round {
		return true
	}
	n.width = max(1, n.width-1) // change has counted it
	return false
}

// succeed notes that the publish of an attach with a permit has succeeded.
func (n *fullNode) succeed(p permit) {
	if n.endTry(p) {
		n.width, n.refused, n.until, n.soon = n.width+1, 0, time.Time{}, time.Time{}
	}
}

// refuse notes that the driver has refused the publish of an item. pause returns for how long a node is not tried after a
// number of refusals in a row.
func (n *fullNode) refuse(name string, p permit, now time.Time, pause func(refused int) time.Duration) {
	if n.refused == 0 {
		n.only = name // the first one since the last success
	} else if n.only != name {
		n.only = ""
	}
	if p == forPlace {
		n.refused = 0 // the driver may refuse this volume alone: another one is tried soon
	} else if !n.endTry(p) {
		return
	}
	n.round++
	n.width, n.refused = 1, n.refused+1
	n.until = now.Add(pause(n.refused))
	if n.soon = now.Add(pause(1)); n.until.Before(n.soon) {
		n.soon = n.until
	}
}

// change notes that the node's limit or the driver's registration on the node has changed: one attach is tried at once.
func (n *fullNode) change() {
	n.round++
	n.width, n.refused, n.until, n.soon = n.tries+1, 0, time.Time{}, time.Time{}
}

// isOver reports whether the node counts as full no more, given that no attach waits there.
func (n *fullNode) isOver(now time.Time) bool { return n.tries == 0 && !now.Before(n.until) }
