// Package registry says WHICH CSI drivers should be served, and how.
//
// The flow: a File reads drivers.yaml, or the files of a folder (load), at the start and
// whenever they change, and keeps the last good Config. A Source looks for drivers in a place
// that the Config names: the CSIDriver objects of the cluster. It extracts and does not decide. A
// Registry runs it while the Config says so, and has one pure function (merge) decide which
// drivers are served: precedence, names and endpoints that are taken, endpoints that objects
// may not name. The result is a Snapshot, a
// plain value for each driver, and the list of Conflicts.
//
// A driver whose CSIDriver object has attachRequired false, or was deleted, is in the
// Snapshot too, marked with WindDown: only the hub can detach what it has attached. Whether
// anything is attached is not known here; the receiver of the Snapshot decides by that. Such
// a driver comes last and is no conflict.
//
// A Single takes the place of the File where there is one driver on a known socket, and
// no drivers.yaml.
//
// A parser reads YAML nodes, checks every key and value, and either fails with Errors, which
// name each mistake with its line and what to do about it, or returns a Config. Each
// mapping of the file is a table (table.go) of keys with their types of value (value.go); the settings of a
// driver are one of them (settings.go). Accepted keys, ranges, defaults, inheritance, the JSON Schema and
// the check of the example drivers.yaml follow from these tables. ParseManifest does the same
// for the keys *.yaml of a ConfigMap, with the lines of the manifest.
//
// The package does not contact a driver, except by the function that a Single is given to ask
// for its name, and does not know whether a driver is up. It imports nothing of
// this project.
package registry
