// Package explore enumerates the states of a small world, and looks into each of them: whether something is wrong in it,
// and whether what is wanted can still be reached from it.
//
// A Model says what may happen in a state. Run goes through all states, breadth first, so that the way to a fault is a
// shortest one. Replay goes one way again, by the names of its steps: so a fault that was found becomes a test.
//
// # Faults
//
// Run finds three kinds of faults: a state that Check rejects, a step that fails, and a state from which what is wanted
// cannot be reached any more without the help of a further fault. For the third kind it keeps the edges of all steps
// that are no faults, and goes backwards from the states with Reached. A state without a way is stuck, and so are all
// that its steps lead to. That asks that a way exists, not that it is taken: a world that can go round in a circle for
// ever, but could leave it, is not stuck.
//
// # Memory
//
// Run keeps a state as a hash of 128 bits with the way to it, about 35 bytes, and 8 bytes for each step that is no fault.
// Whole states live in memory only from their level to the next.
//
// The package knows nothing of volumes. The worlds are in tests: that of volumes, replicas and the API server in
// hub/reconcile, that of leases and clocks in hub/lease. Both are built around the code of the product.
package explore
