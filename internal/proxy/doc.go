// Package proxy gives a CSI driver that listens on a unix socket a TCP port with mutual TLS, for the calls that
// attaching needs.
//
// The flow of one connection: a client connects and shows its certificate. If the certificate comes from a known
// CA and has an allowed name, the proxy opens one connection to the socket for this client, and never a second
// one. Both end together. net/http speaks HTTP/2 on both: each call is a request that the proxy passes on, with its
// metadata, deadline, cancellation and status. A method that is not in the list is answered with PermissionDenied, and
// what is above a limit with Internal. A message is copied while it arrives: a page of many megabytes takes no memory.
//
// If the driver ends, its clients lose their connections. The port stays open, and serves clients again when the driver
// is back. Until then each call is answered with Unavailable and the reason why the socket cannot be opened.
//
// New certificate files apply at once. A client whose certificate has expired, or comes from no CA in the files
// any more, is cut off at that moment. When the proxy stops, it asks the clients to go, and cuts them off after the
// grace.
//
// A second port without TLS serves readiness to the kubelet: the driver's own Probe.
//
// The package does not decode messages and does not balance: one proxy serves one socket.
package proxy
