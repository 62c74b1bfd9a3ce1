// Package tlsproxy gives a CSI driver that listens on a unix socket a TCP port with
// mutual TLS.
//
// One connection flows like this: a client connects and shows its certificate. If that
// comes from a known authority and has an allowed name, and the limit of connections is not
// reached, the proxy connects to the socket and passes bytes in both directions until
// either side ends, is silent for too long or the drain is over. Each client has a
// connection of its own to the socket. What is passed is HTTP/2. The proxy looks only at
// the frames that the driver sends, so that it can ask a client, by a GOAWAY between two
// frames, to end its calls and connect elsewhere.
//
// While a driver is away, its clients lose their connections. The port stays open, and a
// client that comes back when the driver is there is served. Certificates that are replaced
// hold for later connections. A client whose certificate is not accepted any more is asked
// to go, as all are when the proxy stops, and is cut off after the grace.
//
// The package knows nothing of CSI and does not balance: one proxy serves one socket.
package tlsproxy
