// Package preflight says whether the hub can serve each driver of a configuration, before anything is activated.
//
// The flow: Run gathers facts about all drivers side by side — what the endpoint answers, the lease, the rights of this
// account, what the cluster has of the driver — and decides on them in pure functions, one for each Check. AskSocket does the
// same for a socket alone, without a cluster. Report.Text prints the result.
//
// A check is ok, failed, a warning, or skipped because an earlier check failed. A driver that hangs costs only its own time:
// each step at an endpoint has a limit, and so has each driver.
//
// The package writes nothing. Of a driver it calls only Probe, GetPluginInfo, GetPluginCapabilities and
// ControllerGetCapabilities, so a driver that hangs when it attaches passes. It takes no lease and reads no Secret: it asks whether this account may. It lists in pages and keeps
// little of each object, because it may run in the Pod of the hub, within the same limit of memory.
package preflight
