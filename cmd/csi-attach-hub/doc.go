// Command csi-attach-hub attaches and detaches the volumes of many CSI drivers
// from one process.
//
// Without a subcommand it runs the hub: it reads drivers.yaml, fills its caches
// from the Kubernetes API and serves the drivers that the file lists or has
// discovered, following the file (at once on SIGHUP), until it is told to stop by
// SIGTERM or SIGINT; calls in flight then have --shutdown-grace to end.
//
// With --csi-address it is in the place of one csi-attacher: it takes that program's
// flags, with that program's defaults, and serves the one driver on the socket.
//
// "status" shows the drivers of a running hub, "explain" why a volume is not attached.
// "validate" checks drivers.yaml files without contacting anything, "schema" prints
// what editors check them by, "proxy" stands beside a driver that listens on a socket
// only, "version" says which build this is.
//
// There is no logic in this package: it wires registry and hub together.
package main
