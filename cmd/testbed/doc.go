// Testbed is one program for all that needs a whole world on one machine.
//
// Each subcommand is one file: it turns flags into options, lets a package do
// the work and returns the error. The root command listens for SIGINT, SIGTERM
// and SIGHUP; a subcommand that is stopped by them stops what it has started.
// Then sandbox has done what it is for, exit code 0, and demo, which was to prove
// something, has not.
//
// The flow of a demo: scene.go starts a world with the drivers and objects that
// behaviours.go and workload.go describe; demo.go makes Pods, deletes them, waits,
// prints what is attached meanwhile, and judges the drivers' books.
//
// A sandbox is a scene that users change: sandbox_verbs.go serves what they may do to its drivers, hubs and
// Pods, and asks for it from a shell; recipes.txt says what to try.
//
// Chaos and soak are thin wrappers of package torture.
//
// It is for development and demonstration and is no part of the product.
package main
