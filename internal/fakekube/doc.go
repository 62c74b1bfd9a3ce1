// Package fakekube is a small Kubernetes API in memory, for tests that bend time or inject
// faults which a real API server does not offer. Everything else is tested against the
// real one (package testbed).
//
// The flow: New makes an API, API.Client returns an ordinary clientset on it. A request goes
// through the transport of that client, is counted, passes Intercept, and changes the
// store. Each change has a new resourceVersion and goes to the watches, in order, unless
// they are held.
//
// It keeps what attachers depend on: uid and resourceVersion, JSON patches with tests, a status that is a
// subresource, finalizers that hold a deletion, watches from a resourceVersion and with
// initial events. It knows no authentication, no admission, no validation, no field
// selectors, no pages and no conversion.
//
// It has no goroutine and no timer of its own, so it works in a testing/synctest bubble. Bookmarks
// come only when a test calls API.Bookmark.
package fakekube
