// Package tlsproxy gives a CSI driver that listens on a unix socket a TCP port with
// mutual TLS.
//
// The flow of one connection: a client connects and shows its certificate. If the
// certificate comes from a known authority and has an allowed name, and the limit of
// connections is not reached, the proxy connects to the socket. It passes bytes in both
// directions until one side ends, both are silent for too long or the drain is over. Each
// client has a connection of its own to the socket. The protocol is HTTP/2. The proxy parses
// only the frames that the driver sends, so that it can send a GOAWAY between two frames: it
// asks the client to end its calls and connect elsewhere.
//
// If a driver ends, its clients lose their connections. The port stays open, and serves
// clients again when the driver is back. New certificate files apply to later connections. A
// client whose certificate is not accepted any more is asked to go, and cut off after the
// grace. So are all clients when the proxy stops.
//
// The package knows nothing of CSI and does not balance: one proxy serves one socket.
package tlsproxy
