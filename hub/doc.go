// Package hub serves the drivers that the registry lists: it attaches and detaches their volumes.
// Each driver is isolated from all others.
//
// # One driver
//
// Each driver has one manager (manager.go), from the first to the last snapshot that lists it (follow.go).
// The manager owns what is known about the driver: how to serve it, the role of this process, the
// connection, and the reason why the driver is not served. That is one value, driverState, under one mutex,
// with one channel that is closed at every change. Loops wait for a change and read the value again; pure
// functions of the value decide. The manager keeps the driver connected (connection.go) and
// takes the role that the settings ask for (role.go):
//
//   - A leader (leader.go) works for the driver during one term of its lease (hub/lease). No call or write
//     begins that the lease does not cover, and all work of a term ends before the lease is released.
//   - An Observer (hub/observe) watches another attacher work, and compares.
//   - A paused driver stays connected, and nothing is done for it.
//
// All texts of the driver pass through one attach.Redactor, which removes secrets (connection.go).
//
// Only a change of mode, lease or automatic pause ends a role. The role of a driver that goes away and comes
// back goes on. But the leader of a driver that is away releases its lease once, when no call is in
// flight, so that another replica or a csi-attacher on standby can try. After giveUpAfter it releases the lease
// for good: a driver that is not connected has no leader then, and none after a start of the hub.
//
// # From an event to the status
//
//  1. The router hands an event of the cluster to the leader of the driver that spec.attacher names
//     (router.go, watch.go).
//  2. If the VolumeAttachment needs an operation, the leader adds an item to the driver's queue.Queue. The
//     Queue lets the item into the attach or the detach lane when no other work on the volume comes first,
//     and starts a worker for it (hub/queue). What is believed of the volume is in the volume.Table (hub/volume).
//  3. The worker (worker.go) reads the objects again if their cached state is from before the term
//     (takeover.go).
//  4. Before each effect, attach.Driver.Decide makes the plan for the objects as they are then (hub/attach), and the Table says
//     what is next (hub/volume/effects.go). The worker does it (execute.go): finalizers and notes, the CSI call
//     (call.go), the status. Each write passes the driver's write budget and the fence of its lease.
//  5. If the object was deleted meanwhile, say, the item runs again in the other lane. After an error the worker writes the
//     error into the status, and the item waits for its backoff (backoff.go).
//
// # What no event leads to
//
//   - unowned.go detaches a volume that no VolumeAttachment owns any more, after owners.go has read who may
//     own it, and unused.go whether its node uses it. drain.go does that at the end of a term.
//   - finalizers.go removes the finalizer from a PersistentVolume that is being deleted.
//   - takeover.go says what a new leader reads again.
//   - A drift.Watch acts on what differs from the driver's own list of volumes (hub/drift), overdue.go reports operations that have had
//     no success for long and calls that hang, and a resync finds work that events have missed.
//   - wind_down.go serves a driver with WindDown only while something of it is attached.
//
// operation_log.go logs how operations end, and names the keys.
// hub/view answers for the status page, API and metrics (status.Source), from what view.go says of each driver. connection.go knows since when
// the driver has answered no call.
//
// # Isolation
//
// Drivers share the cluster's caches (hub/cache), which they only read, and nothing else. What this process
// knows of a driver's volumes, and its writes that the caches do not show yet, outlive the manager (memory).
// A panic in any goroutine of a driver restarts that driver alone (panics.Go).
//
// The package does not know where drivers come from (registry), what one VolumeAttachment needs
// (hub/attach), which work may start (hub/queue), what is believed of a volume (hub/volume), how objects are kept (hub/cache) or how to speak CSI
// (hub/csiclient).
package hub
