// Package tlsproxy gives a CSI driver that listens on a unix socket a TCP port with
// mutual TLS, for the calls that attaching needs.
//
// The flow of one connection: a client connects and shows its certificate. If the
// certificate comes from a known authority and has an allowed name, and the limit of
// connections is not reached, the proxy connects to the socket. Each client has a connection
// of its own to the socket, which is never made again. Both end together: when one side ends,
// both are silent for too long or the drain is over.
//
// The protocol is HTTP/2. A relay forwards its frames in both directions. It decodes the
// headers of each call: a method that is not in the list is answered with PermissionDenied,
// and nothing of the call reaches the driver. Everything else of a call (messages, metadata,
// deadline, cancellation, status, flow control) passes unchanged. A relay counts the bytes of
// requests and answers, and holds a few frames at most: a page of many megabytes takes no memory
// here. It adds a GOAWAY between two frames to ask a client to end its calls and connect
// elsewhere.
//
// If a driver ends, its clients lose their connections. The port stays open, and serves
// clients again when the driver is back. Until then each call is answered with Unavailable and
// the reason why the socket cannot be opened. New certificate files apply to later connections. A
// client whose certificate is not accepted any more is asked to go, and cut off after the
// grace. So are all clients when the proxy stops.
//
// A second port without TLS serves readiness to the kubelet: the driver's own Probe.
//
// The package does not decode messages and does not balance: one proxy serves one socket.
package tlsproxy
