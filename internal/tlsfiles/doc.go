// Package tlsfiles reads what one side of a mutual TLS connection needs from three
// PEM files that somebody else replaces: the authorities that the other side's
// certificate must come from, the own certificate, and its key.
//
// Files.Load reads all three and checks that they belong together; a Follower looks
// at them again and again and tells a change that is whole from one that is half
// done, which changes nothing. Follower.Run does that for a port, until it is told to stop.
//
// The package opens no connection and decides nothing about names.
package tlsfiles
