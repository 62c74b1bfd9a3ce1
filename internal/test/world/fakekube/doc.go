// Package fakekube is a small Kubernetes API in memory, for tests in virtual time and for
// faults which a real API server does not offer. Tests on a real one use package testbed.
//
// The flow: New makes an API, API.Client returns an ordinary clientset on it. The transport of
// that client counts a request, asks Intercept, and changes the store. Each change gets a new
// resourceVersion and goes to the watches, in order, unless a test holds them.
//
// The API has what attachers depend on: uid and resourceVersion, JSON patches with tests, status
// as a subresource, finalizers that hold a deletion, watches from a resourceVersion and with
// initial events. It has no authentication, admission, validation, field selectors, pages or
// conversion.
//
// It has no goroutine and no timer, so it works in a testing/synctest bubble. It sends
// bookmarks only when a test calls API.Bookmark.
package fakekube
