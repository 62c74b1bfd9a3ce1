// Package adopt prepares the move of CSI drivers from their csi-attacher sidecars to the hub. It reads the manifests
// of a driver, decides whether and how the driver can be served by the hub, and writes what has to change. It changes
// nothing in a cluster.
//
// The way of a manifest:
//
//	Read             bytes -> Objects, each with its file and document number
//	ReadLive         a workload of a cluster -> an Object, as its manifest would be
//	Find             Objects -> Attachers: every csi-attacher container with its workload, socket, user and flags
//	ReadAbout        Attachers of a cluster -> Objects that say more: CSIDrivers, Leases, names of Secrets
//	NewPlans         Attachers -> Plans: the verdict, the entry of drivers.yaml, the notes; a pure function
//	CheckTogether    Plans -> an error if two have one Lease
//	patchOf, Patched Plans of one workload -> its strategic merge patch, its content after a step; proxy.go, drop_in.go and
//	             sidecar_hub.go have the three modes
//	DriverObjects, HubObjects   Plan -> the objects beside the workload: Service, certificates, policies, rights
//	Check            Plans -> an error for names that must not reach an output
//	CheckOriginal    Plans -> an error for workloads that an earlier run has changed
//	Text, JSON, Kustomize, PostRender, Flux, HelmPlugin   Plans -> what the user gets
//
// The csi-attacher container says what the proxy needs: it opens the socket today, so its volume mount, its address
// and its effective user are right for a proxy beside the driver too.
//
// All objects are named after the driver (names.go), so that several drivers live in one namespace.
package adopt
