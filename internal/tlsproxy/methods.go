package tlsproxy

import "fmt"

// The limits of one call, in bytes. A page of ListVolumes may be large: some drivers ignore
// max_entries. Everything else ends up in etcd, which takes less than maxAnswer.
const (
	maxRequest = 4 << 20
	maxAnswer  = 2 << 20
	maxPage    = 16 << 20
	// messageHeader precedes each message of gRPC.
	messageHeader = 5
)

// allowed are the calls that attaching and its diagnosis need, with the limits of their answers in bytes. A
// driver has no authentication of its own: whatever else a driver can do must not be here.
var allowed = map[string]int{
	"/csi.v1.Identity/GetPluginInfo":               maxAnswer,
	"/csi.v1.Identity/GetPluginCapabilities":       maxAnswer,
	"/csi.v1.Identity/Probe":                       maxAnswer,
	"/csi.v1.Controller/ControllerGetCapabilities": maxAnswer,
	"/csi.v1.Controller/ControllerPublishVolume":   maxAnswer,
	"/csi.v1.Controller/ControllerUnpublishVolume": maxAnswer,
	"/csi.v1.Controller/ControllerGetVolume":       maxAnswer,
	"/csi.v1.Controller/ControllerGetVolumeHealth": maxAnswer,
	"/csi.v1.Controller/ListVolumes":               maxPage,
}

// maxMethod bounds the name of a refused method in a text. A client chooses it.
const maxMethod = 200

func refusal(method string) string {
	return fmt.Sprintf("csi-attach-hub proxy does not forward %+.*q: it forwards only the calls that attaching needs", maxMethod, method)
}
