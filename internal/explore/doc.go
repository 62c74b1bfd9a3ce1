// Package explore enumerates the states of a small world, and looks into each of them: whether something is wrong in it,
// and whether what is wanted can still be reached from it.
//
// A Model says what may happen in a state. Run goes through all states, breadth first, so that the way to a fault is a
// shortest one. Replay goes one way again, by the names of its steps: so a fault that was found becomes a test.
//
// The package knows nothing of volumes. The worlds are in tests: that of volumes, replicas and the API server in package
// hub, that of leases and clocks in package lease. Both are built around the code of the product.
package explore
