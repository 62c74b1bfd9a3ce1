// Package csiclient is one verified connection to a CSI controller.
//
// ConnectCounting dials an endpoint once and asks the process behind it, in this order,
// whether it is ready (Probe), who it is (GetPluginInfo) and what it can do
// (GetPluginCapabilities, ControllerGetCapabilities). Only when the name is the
// expected one is there a Session, and a Session lives exactly as long as that
// one connection: it never redials, so that no call can reach a process whose
// name and capabilities were not read. When Session.Done is closed, the owner
// connects again.
//
// To another machine the connection is one of mutual TLS 1.3. The handshake is made
// here, before gRPC speaks, so that an error says which side has to change what, and
// so that nothing is sent to whom the certificates do not vouch for. When the files
// of the TLS are replaced by others that the driver takes too, the Session is done and its
// calls in flight end; the next connection takes the new files.
//
// ListVolumes puts the pages of a listing together: whole or not at all, and with
// what the driver did not say kept apart from "published nowhere".
//
// The package does not retry (but for a listing that the driver aborted, which
// starts again once), does not keep state about volumes and knows
// nothing about Kubernetes.
package csiclient
