package hub

import "slices"

// An item that runs may find that it has to wait for another one: for its turn on a
// volume, for a place on a node, or for a detach that goes first. It is parked then
// and its worker is free; whoever ends hands on to one who waits.

// crowd is how many items have a place on a node, and who waits for one.
type crowd struct {
	placed  int
	waiters []*item
}

// TakeTurn gives a running item its turn on a volume: the CSI spec wants one call
// per volume at a time. If it returns false, the item is parked until the turn is
// its own, will then run anew, and its worker must let go of it.
func (q *queue) TakeTurn(it *item, volumeHandle string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it.held == volumeHandle {
		return true
	}
	q.leaveTurn(it)
	waiters, taken := q.turns[volumeHandle]
	if !taken {
		q.turns[volumeHandle] = nil
		it.held = volumeHandle
		return true
	}
	q.leavePlace(it) // who waits here must not keep others waiting there
	q.park(it)
	it.turn = volumeHandle
	q.turns[volumeHandle] = append(waiters, it)
	return false
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

// leaveTurn ends an item's turn on its volume and hands it to one who waits: a
// detach first, then the one who came first.
func (q *queue) leaveTurn(it *item) {
	if it.held == "" {
		return
	}
	handle, waiters := it.held, q.turns[it.held]
	it.held = ""
	if len(waiters) == 0 {
		delete(q.turns, handle)
		return
	}
	next := detachFirst(waiters)
	q.turns[handle] = without(waiters, next)
	next.held = handle
	q.resume(next)
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
