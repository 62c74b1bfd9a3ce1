package hub

import "slices"

// An item that runs may find that it has to wait for another one: for its turn on a
// volume, for a place on a node, or for a detach that goes first. It is parked then
// and its worker is free; whoever ends hands on to those who wait.

// crowd is how many items have a place on a node, and who waits for one.
type crowd struct {
	placed  int
	waiters []*item
}

// TakeTurn gives a running item the only turn on a volume: the CSI spec wants one call
// per volume at a time. If it returns false, the item is parked until the turn is
// its own, will then run anew, and its worker must let go of it.
func (q *queue) TakeTurn(it *item, volumeHandle string) bool {
	return q.takeTurn(it, volumeCall{volumeHandle: volumeHandle})
}

// ShareTurn is TakeTurn for a call for a volume that may be attached to several nodes: calls
// on other nodes may have their turns at the same time, see SetParallel.
func (q *queue) ShareTurn(it *item, volumeHandle, nodeID string) bool {
	return q.takeTurn(it, volumeCall{volumeHandle: volumeHandle, nodeID: nodeID, shared: true})
}

func (q *queue) takeTurn(it *item, c volumeCall) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.held == c {
		return true
	}
	q.leaveTurn(it)
	t := q.turns[c.volumeHandle]
	if t == nil {
		t = &turn{}
		q.turns[c.volumeHandle] = t
	}
	q.steps++
	if t.fits(c, q.parallel) && !t.awaited() {
		t.take(it, c)
		it.served = q.steps
		return true
	}
	q.leavePlace(it) // who waits here must not keep others waiting there
	q.park(it)
	it.turn, it.came = c, q.steps
	t.waiters = append(t.waiters, it)
	return false
}

// SetParallel says whether items that share the turn on a volume have it at the same time.
// Those that run go on as they are.
func (q *queue) SetParallel(parallel bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.parallel = parallel
	for volumeHandle, t := range q.turns {
		if !parallel && len(t.shared) > 1 {
			for _, it := range t.shared {
				if it.state != running { // it asks for its turn again when it runs
					t.leave(it)
				}
			}
		}
		q.handOn(volumeHandle, t)
	}
}

// TakePlace gives a running item a place on a node, if their number is limited. If it
// returns false, the item is parked as by TakeTurn; its turn on a volume stays its own.
func (q *queue) TakePlace(it *item, node string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.place == node {
		return true
	}
	q.leavePlace(it)
	c := q.nodes[node]
	if c == nil {
		c = &crowd{}
		q.nodes[node] = c
	}
	if q.places > 0 && c.placed >= q.places {
		q.park(it)
		it.crowd = node
		c.waiters = append(c.waiters, it)
		return false
	}
	c.placed++
	it.place = node
	return true
}

// WaitFor parks a running item until the item of another key has run, if that one
// waits to run or runs now. It returns false, and does nothing, if it does not, or
// backs off. As with TakeTurn, the worker must let go of a parked item.
func (q *queue) WaitFor(it *item, key workKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	other := q.items[key]
	if other == nil || other.state == delayed && !other.soon {
		return false
	}
	q.leaveTurn(it)
	q.leavePlace(it)
	q.park(it)
	it.behind = key
	q.behind[key] = append(q.behind[key], it)
	return true
}

// leaveTurn ends an item's turn on its volume and hands it on.
func (q *queue) leaveTurn(it *item) {
	if !it.hasTurn() {
		return
	}
	volumeHandle := it.held.volumeHandle
	t := q.turns[volumeHandle]
	t.leave(it)
	q.handOn(volumeHandle, t)
}

// handOn gives turns on a volume to those who wait, as far as they may have them.
func (q *queue) handOn(volumeHandle string, t *turn) {
	q.steps++
	for _, it := range slices.Backward(t.admit(q.parallel)) { // each goes to the head of its lane
		it.served = q.steps
		q.resume(it)
	}
	if t.free() && len(t.waiters) == 0 {
		delete(q.turns, volumeHandle)
	}
}

// leavePlace ends an item's place on a node.
func (q *queue) leavePlace(it *item) {
	if it.place == "" {
		return
	}
	c := q.nodes[it.place]
	c.placed--
	q.admit(it.place, c)
	it.place = ""
}

// admit gives places on a node to those who wait, as far as there are any, a detach
// first: it makes room on the node.
func (q *queue) admit(node string, c *crowd) {
	for len(c.waiters) > 0 && (q.places == 0 || c.placed < q.places) {
		next := detachFirst(c.waiters)
		c.waiters = without(c.waiters, next)
		c.placed++
		next.place = node
		q.resume(next)
	}
	if c.placed == 0 {
		delete(q.nodes, node)
	}
}

// detachFirst returns the first detach of a list, or its first item.
func detachFirst(items []*item) *item {
	if i := slices.IndexFunc(items, func(it *item) bool { return it.lane == detachLane }); i > 0 {
		return items[i]
	}
	return items[0]
}

func without(items []*item, it *item) []*item {
	return slices.DeleteFunc(items, func(other *item) bool { return other == it })
}
