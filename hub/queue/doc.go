// Package queue decides which work of one driver starts, and when.
//
// A Queue has an Item for each VolumeAttachment that needs work, for each dangling publication, and for each finalizer of a
// PersistentVolume that is perhaps to be removed. An item is in one of four states: Delayed, until a time; Blocked, until
// what it waits for has changed; Ready, in its lane; Running, with a worker. An event adds it (Add), Run hands it to a
// worker, the worker asks before each call (MayCall), and ends the run (End).
//
// Whether an item may start is asked in this order: its volume, its lane, its node. An item that may not is blocked, its
// Wait is the reason, and it is added again when that is signalled:
//
//   - Its volume (signalVolume): other items of the volume go first, or are in flight. next decides about all items of a
//     volume together, whenever one of them has changed. It is pure.
//   - Its node (signalNode): it has maxPerNode calls in flight, or it is full, see below. The items that wait there have an order.
//
// One list of alarms has what Start looks at next: items whose delays end, nodes that were signalled, and full nodes to try.
//
// Package volume has what is believed of volumes; the Queue reads it by Beliefs. One mutex guards both: volumes, lanes and
// nodes depend on each other, and on what is believed. No method does more than bookkeeping under it.
//
// # Rules
//
// Calls. See next: one call for a volume at a time, side by side only for multi-node volumes on
// different node IDs; a publish of a single-node volume waits for the unpublish elsewhere, unless that
// backs off after an answer of the driver, or has had a try since the publish became due.
//
// Lanes. Attaches and detaches each have half of the workers, so that a burst of the one does not
// stop the other; idle workers are lent to short calls, and repairs have a quarter at most (lanes.go).
//
// Full nodes (node.go). After the driver has refused a publish because the node is full, attaches there wait in
// a line, unless their volume is, or may be, published there already (Beliefs.NeedsCapacity). An attach that is refused goes
// to the end of the line, and repairs wait behind all others. One goes for each detach, also for one that ended after the
// refused publish had begun. Else one goes as a try after a pause; each success lets two more go, until a refusal, which
// begins the next pause. The node has one pause, which doubles with each refusal in a row; but while only one volume that waits
// was refused, another one is tried after the first pause, since the driver may refuse that volume alone. So a really full node
// gets one call for each pause, and tries are refused at most once more than they succeed.
//
// Suspects. An item during whose calls the connection ended more than three times in a row, on the other side or because the driver
// answered nothing, may be what ends or blocks the driver's process. A new connection, Probe or term does not end its backoff,
// and it waits for a part of that again after the driver could not be reached, so that the calls for other volumes have time.
//
// Terms. Items belong to one term of the driver's lease.
package queue
