// Package adopt prepares the move of CSI drivers from their csi-attacher sidecars to the hub. It reads the manifests
// of a driver, decides whether and how the driver can be served by the hub, and writes what must change. It changes
// nothing in a cluster.
//
// The way of a manifest:
//
//	Read       bytes -> Objects, each with its file and document number
//	Find       Objects -> Attachers: every csi-attacher container with its workload, socket, user and flags
//	NewPlans   Attachers -> Plans: the driver's name (input.go:driverNames), the ports, and the findings that hold (findings.go); a pure function
//	Text       Plans -> the finding: verdict, what was found, notes, the hub's file
//	Kustomize  Plans -> a folder: a kustomization for each step, the hub's files, README.md with the steps
//
// What is printed and written is in templates: finding.txt by Text; the other files of the folder by Kustomize, readme.md with the steps.
// The caller parses the flags of csi-attacher (cmd/csi-attach-hub/sidecar_flags.go).
//
// The csi-attacher container says what the proxy needs: it opens the socket today, so its volume mount, its address
// and its effective user are right for a proxy beside the driver too.
//
// All objects are named after the driver (Base), so that several drivers live in one namespace.
package adopt
