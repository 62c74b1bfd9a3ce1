// Package registry says WHICH CSI drivers should be served, and how.
//
// The flow: ParseFile reads a drivers.yaml into YAML nodes, checks every key and
// value of it, and either fails with Errors, which name each mistake with its line
// and what to do about it, or returns a Config. Its Drivers are a Snapshot: a plain
// value for each driver, with the settings that hold for it (its own, else those
// of defaults, else DefaultSettings). The hub is sent that Snapshot.
//
// All settings of a driver stand in one table (settings.go), from which reading,
// ranges, inheritance and the check of the example drivers.yaml follow.
//
// The package does not contact a driver, know whether one is up, or follow a file
// that changes. It imports nothing of this project.
package registry
