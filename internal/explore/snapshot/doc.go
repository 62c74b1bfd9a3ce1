// Package snapshot copies Go values of any depth and makes keys of them, so that a program that was not written for it
// can be explored: its state is copied before each step, and two states are the same if their keys are equal.
//
// A Plan is compiled once for a type: it goes through all types that the type leads to, also through fields that are not
// exported. What it cannot copy surely, such as a func or a channel, needs a Rule, or the plan is an error that names the
// field. So a new field of such a type cannot be forgotten.
//
// A copy has the shape of the original: pointers that were equal are equal, also those into the middle of a struct or a
// slice, and slices that overlapped overlap. A key has that shape too. It numbers objects in the order in which they are
// found, with maps sorted by their keys, so addresses make no difference.
//
// In keys, an empty slice is the same as nil, and so is the capacity of a slice, for nothing else than append sees them.
// A map that is empty is not the same as nil, unless NilIsEmpty says so.
//
// The package reads memory without locks. Nobody may change a value while it is copied or keyed, other than what rules
// leave out. It is made for graphs of some hundred objects: some lookups take time in proportion to their number.
package snapshot
