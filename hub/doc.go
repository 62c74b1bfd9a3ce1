// Package hub serves the drivers that the registry lists: it attaches and detaches their volumes.
// Each driver is isolated from all others.
//
// Each driver has one manager (manager.go). It owns what is known about the driver: how it is to be served,
// the role of this process, the connection, and what keeps the driver from being served. That is one value,
// driverState, under one mutex, with one channel that tells of every change. Loops wait for a change and
// read the value again; pure functions on it decide. The manager keeps the driver connected (connection.go,
// session_use.go) and does what its role says (role.go), for as long as the registry lists the driver
// (follow.go):
//
//   - A leader (leader.go) works for the driver during one term of its lease (hub/lease). What a term has
//     begun ends before the lease is let go, and no call or write begins that the lease does not cover.
//   - An Observer (hub/observe) watches another attacher work, and compares.
//   - A paused driver stays connected, and nothing is done for it.
//
// Only a change of mode, lease or automatic pause ends a role. A driver that goes away and comes back does not,
// except that the leader lets its lease go once, while nothing is in flight, so that another replica or
// a csi-attacher that stands by can try.
//
// The flow of one VolumeAttachment: the router hands an event of the cluster to the leader of the driver
// named in spec.attacher (router.go, watch.go). If the VolumeAttachment needs something, the driver's
// volume.Table gets an entry, and lets it into the attach or the detach lane when no other work on the
// volume forbids that. A worker (worker.go) reads the objects, has package attach plan, and executes the
// plan effect by effect (execute.go, call.go). It keeps to the object that it began with: at the end it
// looks at what has changed meanwhile, a deletion say. A volume that no VolumeAttachment owns any more
// is detached by unowned.go, after owners.go has read who may own it, or at the end of a term by drain.go.
//
// takeover.go says what a new leader reads again. drift.go compares with the driver's own list of volumes,
// stuck.go reports what is without success for long, and resync.go finds work that no event has led to.
//
// Drivers share the cluster's caches (hub/cache), which they only read, and nothing else. What this process
// knows of a driver's volumes, and what it wrote that the caches do not show yet, outlives the
// manager (memory). A panic in the work for a driver restarts that driver alone.
//
// A driver that is marked with WindDown is served only while something of it is left (wind_down.go).
//
// The package does not know where drivers come from (registry), what one VolumeAttachment needs
// (hub/attach), which work may start (hub/volume), how objects are kept (hub/cache) or how to speak CSI
// (hub/csiclient).
package hub
