// Package csiclient is one verified connection to a CSI controller.
//
// Connect dials an endpoint once and asks the process behind it, in this order,
// whether it is ready (Probe), who it is (GetPluginInfo) and what it can do
// (GetPluginCapabilities, ControllerGetCapabilities). Only when the name is the
// expected one is there a Session, and a Session lives exactly as long as that
// one connection: it never redials, so that no call can reach a process whose
// name and capabilities were not read. When Session.Done is closed, the owner
// connects again.
//
// ListVolumes puts the pages of a listing together: whole or not at all, and with
// what the driver did not say kept apart from "published nowhere".
//
// The package does not retry (but for a listing that the driver aborted, which
// starts again once), does not keep state about volumes and knows
// nothing about Kubernetes.
package csiclient
