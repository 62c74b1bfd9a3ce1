package hub

import "slices"

// volumeCall is a call for one volume, for which an item needs its turn.
type volumeCall struct {
	volumeHandle string
	// shared: calls on other nodes than nodeID may be in flight too. Otherwise nodeID is "",
	// and the call must be the only one for the volume.
	shared bool
	nodeID string
}

// turn is who may call the driver for one volume now, and who waits to. Its items and the
// turn itself are guarded by the queue's mutex.
type turn struct {
	only    *item            // has the volume for itself, nil if nobody has
	shared  map[string]*item // have it for one node each, by node ID; then there is no only
	waiters []*item          // in the order in which they came
}

// free reports whether nobody has a turn.
func (t *turn) free() bool { return t.only == nil && len(t.shared) == 0 }

// fits reports whether a call goes along with those who have a turn.
func (t *turn) fits(c volumeCall, parallel bool) bool {
	if t.free() {
		return true
	}
	return parallel && c.shared && t.only == nil && t.shared[c.nodeID] == nil
}

// awaited reports whether somebody waits to have the volume for itself. Who comes then waits
// too: there could always be another one who goes along with those who have a turn.
func (t *turn) awaited() bool {
	return slices.ContainsFunc(t.waiters, func(it *item) bool { return !it.turn.shared })
}

// take gives an item a turn.
func (t *turn) take(it *item, c volumeCall) {
	it.held = c
	switch {
	case !c.shared:
		t.only = it
	case t.shared == nil:
		t.shared = map[string]*item{c.nodeID: it}
	default:
		t.shared[c.nodeID] = it
	}
}

// leave ends the turn of an item.
func (t *turn) leave(it *item) {
	if it.held.shared {
		delete(t.shared, it.held.nodeID)
	} else {
		t.only = nil
	}
	it.held = volumeCall{}
}

// admit gives a turn to those of the waiters who may have one now, and returns them: all
// that go together, in their order, up to the first one that has to have the volume for
// itself.
func (t *turn) admit(parallel bool) []*item {
	if len(t.waiters) == 0 {
		return nil
	}
	var admitted []*item
	for _, it := range t.order() {
		if t.fits(it.turn, parallel) {
			t.take(it, it.turn)
			admitted = append(admitted, it)
		} else if !it.turn.shared {
			break
		}
	}
	t.waiters = slices.DeleteFunc(t.waiters, func(it *item) bool { return it.held == it.turn })
	return admitted
}

// order returns the waiters in the order in which they are served: detaches before
// attaches, then whoever came first. A detach that has had a turn since the longest waiter
// came is tried again, and does not go before it once more.
func (t *turn) order() []*item {
	oldest := t.waiters[0].came
	var first, rest []*item
	for _, it := range t.waiters {
		if it.lane == detachLane && it.served < oldest {
			first = append(first, it)
		} else {
			rest = append(rest, it)
		}
	}
	return append(first, rest...)
}
