// Package fakecsi is an in-memory CSI controller with knobs that keeps books.
//
// It stands in for a storage driver wherever the real one cannot be had: unit
// tests, integration tests, demos, benchmarks. It has two nouns. A Backend is
// the storage: volumes, what is attached where, the knobs that make it slow,
// failing, hanging or forgetful, and the books about every call. A Server
// serves one Backend on an endpoint and can be stopped, crashed and started
// again while the Backend lives on.
//
// One call flows like this: it is booked as in flight, meets the knobs that
// match it (latency, hang, fault), changes the storage, is written to the
// StateFile if there is one, and is booked with its end, its code and whether it
// changed anything. Books is a consistent snapshot of all that; Wait wakes on
// each change, so that no test needs to sleep or poll.
//
// A Backend implements the Identity and Controller services itself, and takes
// its time only from timers and contexts: in a testing/synctest bubble its
// methods are called directly, without a Server. A process has an HTTP API for
// books and knobs (Control) and a client for it (ControlClient).
//
// It does not mount, has no Node service and no snapshots, and of provisioning
// only what csi-test's sanity suite needs to test publishing.
package fakecsi
