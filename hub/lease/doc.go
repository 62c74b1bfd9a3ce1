// Package lease decides which of several processes works for a driver: never two at a time.
//
// Hold competes for the Lease of one driver, by default the Lease that csi-attacher holds. A
// candidate polls nothing: watches note since when, by this process's own monotonic clock, each
// Lease has been as it is (observations). One watch sees all Leases in the namespace of the
// replicas; a Lease in another namespace has a watch of its own, until nobody needs it any more
// (watcher.go). A Lease may be taken when it is absent or released, or when it has not changed for its
// duration. It is taken with one Create or Update that carries the observed resourceVersion, and renewed
// in each retry period (lock), the first time at a random slot of it (firstRenewal). Where Leases may not
// be watched, they are read once in each retry period.
//
// The package writes a Lease as client-go's elector does (tools/leaderelection), and either
// takes over from the other. It does not run that elector, which polls every Lease that it
// waits for, waits for the whole duration of a Lease that was seen to expire, and does not
// say when it sent a renewal.
//
// While the lease is held, Serve does the work. Each request goes through the fence
// (Term.Begin, and Term.Confirm when it leaves the process), which is closed when the last
// renewal was sent too long ago. The leader ends Term.Lost when the lease could not be
// renewed in time or has another holder. When the work must end, Serve is asked to stop, the
// lease is renewed until Serve has returned, and only then it is released.
//
// Replicas share the drivers. Each renews a Lease of its own that says which drivers it can
// call (announcer), each knows the live ones (members), and all compute the same owner of each
// driver (assign). A replica competes for the drivers that it owns, and for drivers whose
// lease nobody has held for a lease duration. It hands over a driver that has had another
// owner for a moment, unless that owner did not take the lease before. Sharing only says who
// should compete: the lease alone keeps two processes apart. The Leases of dead replicas stay
// for an hour. A replica that starts tells them apart by their renewTime (newestRenewal).
//
// A lease is taken only while the driver can be called from here: a csi-attacher that is not there
// for a moment may reach the driver, and would wait for ever. Whether a replica can call a
// driver may change at any time (Candidacy.Reach). A change is announced and ends no term: the
// lease is kept until another replica can call the driver. Serve may release the lease so that
// another process can try. If none does for a lease duration, the same process takes the lease
// again while the driver is Away, and not when it is Unreached.
//
// The process needs get, list, watch, create, update and delete on leases
// (coordination.k8s.io) in the namespace of the replicas. In other namespaces it needs get, list,
// watch and update on each Lease by name, and create only for a Lease that does not exist.
//
// # Assumptions and consequences
//
// Clocks may differ. A Lease carries the time of its holder, and nobody decides by it who may act.
//
//   - Each process measures with its own clock: the holder since it sent the last renewal that succeeded, who waits since
//     it saw the Lease in its present state. The clocks of the holder, of who waits and of the driver's machine must not
//     go more than 1.25 % too fast or too slow. So much fits into half of the margin (fenceMargin: 1/20 of the lease),
//     and a call that is on the way to the driver takes from the same half.
//   - A process may be stopped at any time, for any time. A frozen machine may stop its monotonic clock, or its wall
//     clock may be set, but not both between a renewal and a call: the clock that shows the longer time counts. If a
//     machine was frozen without either clock noticing, its first call on waking may be one too many.
//   - Requests to the API server may be lost, late, or answered late. An update carries the resourceVersion that it
//     replaces, so a late update finds the Lease of another holder changed and fails.
//   - Nobody deletes a Lease or writes a holder into it by hand, and no two processes have the same identity.
//   - A driver ends a call at the deadline that came with it, and when the call is cancelled.
//
// Then a call that fits into a lease (fits) is at work only while the API server knows its sender as the holder, also if
// the process or its machine dies during the call. So no other process has begun to act.
//
// A Lease that nobody renews is taken when its duration has passed since it was last renewed, or since the process that
// takes it started, and a Lease that was released is taken at once, or a retry period after an attempt that failed, by a
// process that runs alone or to which the driver is assigned. If that one does not take it, another does one duration
// later. Nobody takes it while no process can call the driver.
//
// What cannot be promised:
//
//   - A call that takes longer than a lease is cancelled when the loss is noticed, which is before another process may
//     take the Lease. If its process is stopped or its machine is lost during such a call, the driver goes on with it
//     while another process begins.
//   - A write to the API server that has passed the fence may arrive late, if the process is stopped right then. There
//     is no Confirm for writes. A patch tests the UID of its object and the finalizers that it changes.
//   - A request on the wire cannot be called back.
//   - csi-attacher has no fence. It acts for RetryPeriod and RenewDeadline after its last renewal was answered, and on
//     waking after a pause until it notices. By default that is a whole lease, so only the hub keeps away from it then.
//
// TestExploreLease goes through the states of this world around the code of this package. Its processes run alone: how
// replicas share drivers (assign, handsOver, passedOver) decides who competes for a Lease, and not who may act.
// TestExploreLeaseNeedsItsAssumptions shows for both assumptions on clocks, and for calls longer than a lease, that two
// processes can act at once without them. TestLargestDrift finds the 1.25 %.
//
// The package knows nothing of CSI and volumes, and starts no work but Serve.
package lease
