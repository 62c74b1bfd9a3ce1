// Package tlsfiles reads what one side of a mutual TLS connection needs from three
// PEM files that somebody else replaces: the authorities that the other side's
// certificate must come from, the own certificate, and its key.
//
// Files.Load reads all three and checks that they belong together. A Follower reads them
// again and again, and returns a change once it is whole. Follower.Run does that for a port
// until its context ends.
//
// The package opens no connection and decides nothing about names.
package tlsfiles
