// Package tlsfiles reads the three PEM files of one side of a mutual TLS connection: the
// CAs of the other side's certificate, the own certificate, and its key. Another
// process may replace the files at any time.
//
// Files.Load reads all three and checks that they belong together. Material.Reload reads them
// again, and returns a change once it is whole. Follow does that for a port at intervals until
// its context ends, and closes the channel of Material.Replaced with each change.
// Material.VerifyClient checks the certificate of a client.
//
// The package opens no connection and decides nothing about names.
package tlsfiles
