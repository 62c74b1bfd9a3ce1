// Package tlsproxy gives a CSI driver that listens on a unix socket a TCP port with
// mutual TLS.
//
// One connection flows like this: a client connects and shows its certificate; if
// that comes from a known authority and has an allowed name, and there is room, the
// socket is connected to and bytes are passed in both directions until either side
// ends, is silent for too long or the drain is over. Each client has a connection of
// its own to the socket. What is passed is HTTP/2, of which only the lengths of what
// the driver sends are looked at: so that a client can be asked, by one GOAWAY between two
// frames, to end its calls and connect elsewhere.
//
// A driver that is away costs each client its connection and nothing else: the
// port stays open, and a client that comes back when the driver is there is served.
// Certificates that are replaced hold for connections made from then on; a client
// whose certificate would not be taken any more is asked to go, as all are when the proxy
// stops, and cut off after the grace.
//
// The package knows nothing of CSI, and balances nothing: one proxy, one socket.
package tlsproxy
