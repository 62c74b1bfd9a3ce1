// Package certtest makes authorities and certificates for tests of TLS.
//
// NewAuthority makes an authority, Authority.Issue a certificate of it for the names
// and the time that a test needs; Write puts what one side needs into files as TLS
// options name them. Whatever fails ends the test.
package certtest
