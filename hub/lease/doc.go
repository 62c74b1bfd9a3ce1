// Package lease decides which of several processes works for a driver: never two at a time.
//
// Hold competes for the Lease of one driver, by default the Lease that csi-attacher holds. A
// candidate polls nothing: watches note since when, by this process's own monotonic clock, each
// Lease has been as it is (observations). One watch sees all Leases in the namespace of the
// replicas; a Lease in another namespace has a watch of its own. A Lease may be taken when it
// is absent or released, or when it has not changed for its duration. It is taken with one
// Create or Update that carries the observed resourceVersion, and renewed in each retry
// period (lock). Where Leases may not be watched, they are read once in each retry period.
//
// The package writes a Lease as client-go's elector does (tools/leaderelection), and either
// takes over from the other. It does not run that elector, which polls every Lease that it
// waits for, waits for the whole duration of a Lease that was seen to expire, and does not
// say when it sent a renewal.
//
// While the lease is held, Serve does the work. Each request goes through the fence
// (Term.Begin, and Term.Confirm when it leaves the process), which is closed when the last
// renewal was sent too long ago. The leader closes Term.Lost when the lease could not be
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
// A lease is taken only while the driver can be called from here: a csi-attacher that is away
// for a moment may reach the driver, and would wait for ever. Whether a replica can call a
// driver may change at any time (Claim.Reach). A change is announced and ends no term: the
// lease is kept until another replica can call the driver. Serve may release the lease so that
// another process can try. If none does for a lease duration, the same process takes the lease
// again while the driver is Away, and not when it is Unreached.
//
// The process needs get, list, watch, create, update and delete on leases
// (coordination.k8s.io) in the namespace of the replicas. In other namespaces it needs get, list,
// watch and update on each Lease by name, and create only for a Lease that does not exist.
//
// The package knows nothing of CSI and volumes, and starts no work but Serve.
package lease
