// Package lease decides which of several processes works for a driver: at no time
// two of them.
//
// Hold competes for the Lease of one driver, by default the one that csi-attacher
// holds too. While it waits, nothing is polled: one watch per namespace feeds an
// observer, which knows of each lease since when by this process's own monotonic clock it
// has stood unchanged. A lease is due when it is absent or released, or when it
// stood for its duration. Only then client-go's elector is run (campaign), which takes it with an
// update guarded by the resourceVersion of a fresh read, and renews it from then
// on. Where leases may not be watched they are asked for, once in each retry period.
//
// While the lease is held, Serve does the work. What it begins goes through the fence
// (Term.Begin, and Term.Confirm when it leaves the process), which is shut when the last
// renewal is too long ago; a
// supervisor closes Term.Lost when the lease could not be renewed or somebody
// else holds it. When the work is to end, Serve is asked to stop, the lease is renewed
// until Serve has returned, and only then released.
//
// Replicas share the drivers: each renews a Lease of its own that says what it is
// able to serve (announcer), each counts the living ones (roster) and computes the same
// owner of each driver (share). A replica competes for what belongs to it, and for what
// nobody has held for a lease duration; it hands over what belongs to another for a
// moment, unless it was that one which did not take it before. Sharing only says who
// should compete. What keeps two processes apart is the lease alone.
//
// Whether a replica is able to call a driver changes at any time (Claim.Able). A change is
// announced and ends no term: the lease is held on until another replica is able to serve
// the driver. A driver that no replica can call is taken after a lease duration, by the
// replica to which it belongs when it comes back for all.
//
// In the namespaces of the leases, and in that of the replicas, the process needs get, list, watch,
// create and update on leases (coordination.k8s.io), and delete in that of the
// replicas.
//
// The package knows nothing of CSI and volumes, and starts no work but Serve.
package lease
