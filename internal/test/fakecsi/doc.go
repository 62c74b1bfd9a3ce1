// Package fakecsi is an in-memory CSI controller with knobs that keeps books.
//
// It stands in for a storage driver in unit tests, integration tests, demos and
// benchmarks. It has two nouns. A Backend is the storage: volumes, attachments,
// the knobs that make it slow, failing, hanging or forgetful, and the books about
// every call. A Server serves one Backend on an endpoint. It can be stopped,
// crashed and started again while the Backend lives on.
//
// The flow of a call: the Backend books it as in flight, applies the knobs that
// match it (latency, hang, fault), changes the storage, and books the end of the
// call, its code and whether it changed the storage. Books returns a consistent
// snapshot of all that. Wait wakes on each change, so that no test needs to sleep
// or poll.
//
// A Backend implements the Identity and Controller services itself, and takes
// its time only from timers and contexts: in a testing/synctest bubble, call its
// methods directly, without a Server.
//
// It does not mount or provision and has no Node service and no snapshots.
package fakecsi
