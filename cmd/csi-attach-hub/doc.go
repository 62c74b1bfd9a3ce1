// Command csi-attach-hub attaches and detaches the volumes of many CSI drivers
// from one process.
//
// Without a subcommand it runs the hub. The hub reads drivers.yaml, fills its caches
// from the Kubernetes API and serves the drivers that the file lists or the hub
// discovers. It reads the file again when that changes, and on SIGHUP. SIGTERM or SIGINT
// stops it: calls in flight then have --shutdown-grace to end.
//
// With --csi-address it replaces one csi-attacher: it takes csi-attacher's flags, with
// csi-attacher's defaults, and serves the driver on that socket.
//
// "status" shows the drivers of a running hub and the volumes in trouble, "volumes" lists volumes
// with their Pods and claims, the worst first. "explain" says why a volume is not attached.
// "adopt" reads the manifests of a driver, and prints or writes what moves the driver to the hub.
// "validate" checks drivers.yaml files, and ConfigMaps with them, without contacting anything.
// "schema" prints the JSON Schema of drivers.yaml. "version" prints the version of the build, "completion" a script
// for a shell.
//
// Under a name that begins with "kubectl-", as a plugin of kubectl, the program never runs a hub.
//
// This package only wires the other packages together.
package main
