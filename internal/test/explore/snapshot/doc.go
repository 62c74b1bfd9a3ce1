// Package snapshot makes keys of Go values of any depth, so that a program that was not written for it can be explored: two
// states are the same if their keys are equal.
//
// A Plan is made once for a type: it goes through all types that the type leads to, also through fields that are not
// exported. What has no key of its own, such as a func, a channel or an interface, needs a Rule, or the plan is an error that names the
// field. So a new field of such a type cannot be forgotten.
//
// A key has the shape of the value: it tells pointers to the same value, also into the middle of another one, from pointers to
// equal values. It numbers values in the order in which they are found, with maps sorted by their keys, so addresses make no
// difference. An empty slice is the same as nil, and whether slices overlap makes no difference. A map that is empty is not the
// same as nil.
//
// The package reads memory without locks. Nobody may change a value while its key is made, other than what rules leave out.
package snapshot
