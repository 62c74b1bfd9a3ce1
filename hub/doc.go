// Package hub runs the drivers that the registry says are to be served: it attaches
// and detaches their volumes, each driver isolated from all others.
//
// The flow of one VolumeAttachment: an event of the cluster reaches the router,
// which hands it to the driver named in spec.attacher (router.go, watch.go). If the
// VolumeAttachment asks for something, the driver's volume.Table gets an entry, and lets it into
// the attach or the detach lane when no other work on the volume forbids that. A worker (worker.go)
// reads the objects, lets package attach plan, and executes the plan effect by effect (execute.go).
// A run ends with the object that it began with. What has changed meanwhile, a deletion say, is
// decided at its end: the worker says when to look again, and for what. What a cache does not show
// yet of the hub's own writes is laid over it (cache.Overlay). What this process did for a volume is
// kept in the Table until it is undone: a volume that no VolumeAttachment owns any more is detached by
// unowned.go, after owners.go has read who may own it, or at the end of a term by drain.go.
//
// After a takeover takeover.go says what is read anew. drift.go compares with the driver's own list,
// stuck.go reports what is without success for long, and resync.go finds what no event has led to.
//
// connection.go keeps the driver connected, session_use.go uses one session, and call.go makes a
// call on it, behind the fence of the lease. When a connection ends, the lanes are shut until the next
// one (driver.go).
//
// Drivers share the cluster's caches (hub/cache), which they only read, and nothing else.
// A driver that is slow, away or panics has a queue, workers, a connection and a backoff
// of its own, so that the others do not notice.
//
// A driver is worked for only while this process holds its lease (hub/lease): a post
// stands beside each driver for as long as it is to be served, keeps it connected and does
// what mode and lease say. It works (driver), for one term of the lease at a time; it
// watches another attacher work and compares (hub/observe); or it waits. What a term
// has begun ends before the lease is let go, and no call or write begins that the
// lease does not cover. Only mode, pause and the lease's name end what a post does: a
// driver that goes away and comes back does not, but that the lease is let go once while
// nothing is in flight, for an attacher that stands by (absence).
//
// Drivers come and go with the snapshots of the registry. One that is marked with WindDown
// is served only while something of it is left: each event that may change that has it
// looked at again.
//
// The package does not know where drivers come from (registry), what one
// VolumeAttachment needs (hub/attach), which work may start (hub/volume), how objects are kept
// (hub/cache) or how to speak CSI (hub/csiclient).
package hub
