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
// # Reduction
//
// If a state has a Local step, Run takes that step alone, provided that it leads to a state that is new or has a higher
// number: states are numbered in the order in which they are found, and their steps are taken in that order. What is
// found stays the same, although fewer states are seen:
//
// Take a way of steps w from a state s of which Run has taken the Local step l alone, to l(s). If w has l, and no step
// before it forgets what l did, then l may come first, and the rest of w leads from l(s) to the same end. If a step of w
// forgets what l did, w leads from l(s) to the same end. Else w leads from l(s) to the end of w with l after it, which
// looks the same to Check and Reached, and in which the same steps fail. The number grows each time while w does not
// get longer; numbers are finite, so after some of these a state follows of which Run has taken all steps, and so the
// first of w. So each end of a way has a state that Run sees and that differs from it by Local steps only. A way without
// faults stays one, since a Local step that is taken alone is no fault: so what is stuck is found too.
//
// All of this stands on what Step.Local promises. Options.CheckLocal verifies it in each state. A trace of a reduced run
// is a shortest one of the states that it has seen; Options.Full gives a shortest one of all.
//
// # Memory
//
// Run keeps a state as a hash of 128 bits with the way to it, about 35 bytes, and 8 bytes for each step that is no fault.
// Whole states live in memory only from their level to the next.
//
// The package knows nothing of volumes. The worlds are in tests: that of volumes, replicas and the API server in package
// hub, that of leases and clocks in package lease. Both are built around the code of the product.
package explore
