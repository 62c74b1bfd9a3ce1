// Package safety says what the product promises about volumes, each promise as a pure function of what somebody has seen: calls
// at a driver (calls.go), VolumeAttachments and PersistentVolumes (objects.go), and who holds a lease (lease.go). rule.go names them.
//
// Five see that, each with other eyes, and all ask here: the books of package fakecsi (each call of every test), the explored
// worlds (hub/reconcile/explore_*_test.go, each state that is possible), the explored leases (hub/lease/explore_*_test.go), the
// random test (hub/tests/random_*_test.go, long ways in virtual time) and package torture (real hubs: killed at each write and
// call, and with many faults at once).
//
//	OneCall               books, explored worlds
//	OneNode, Announced    books
//	DetachFirst           explored worlds
//	SameObject            explored worlds
//	InUse                 explored worlds, random test
//	Holder                explored worlds, explored leases, torture
//	all other rules       explored worlds, random test, torture
//
// A machine that cannot see something exactly says Perhaps. Where a promise does not hold because of what somebody has done
// to the world, who asks leaves the question out, and says why.
package safety
