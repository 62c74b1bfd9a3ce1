// Package csiclient is one verified connection to a CSI controller.
//
// Connect dials an endpoint once and asks the process behind it, in this order,
// whether it is ready (Probe), who it is (GetPluginInfo) and what it can do
// (GetPluginCapabilities, ControllerGetCapabilities). If the name is the expected
// name, Connect returns a Session. A Session lives as long as that one connection:
// it never redials, so that no call can reach a process whose name and capabilities
// were not read. When the context Session.Ended has ended, the owner connects again.
//
// A connection to another machine uses mutual TLS 1.3. The handshake is made here, before
// gRPC starts, so that an error says which side must change what, and so that nothing is
// sent to a server whose certificate is not trusted. When the TLS files are replaced by
// others with which the driver can be reached, the Session is done: no further call begins
// on it, calls in flight go on until they have ended, and the next Connect uses the new
// files.
//
// ListVolumes joins the pages of a listing: it returns all of them or an error. It
// distinguishes volumes that are published nowhere from volumes whose nodes the driver did
// not report.
//
// No driver may take the memory of the others: answers, their headers and
// listings are limited (limits.go, listing.go), and so is the number of pages that all drivers send at once.
//
// The package does not retry, except that a listing that the driver aborted starts again
// once. It keeps no state about volumes and knows nothing about Kubernetes.
package csiclient
