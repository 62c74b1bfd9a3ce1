// Testbed is one program for all that needs a whole world on one machine.
//
// Each subcommand is one file: it turns flags into options, lets a package do
// the work and returns the error. The root command listens for SIGINT and
// SIGTERM; a subcommand that is stopped by them ends in order, with exit code 0.
// It is for development and demonstration and is no part of the product.
package main
