package fakecsi

import "slices"

// Method is the name of a CSI RPC without its service, as in the CSI
// specification. In knobs the empty Method means every method.
type Method string

// The methods that a Backend answers and books.
const (
	Probe                      Method = "Probe"
	GetPluginInfo              Method = "GetPluginInfo"
	GetPluginCapabilities      Method = "GetPluginCapabilities"
	ControllerGetCapabilities  Method = "ControllerGetCapabilities"
	ControllerPublishVolume    Method = "ControllerPublishVolume"
	ControllerUnpublishVolume  Method = "ControllerUnpublishVolume"
	ListVolumes                Method = "ListVolumes"
	CreateVolume               Method = "CreateVolume"
	DeleteVolume               Method = "DeleteVolume"
	ValidateVolumeCapabilities Method = "ValidateVolumeCapabilities"
)

var methods = []Method{
	Probe, GetPluginInfo, GetPluginCapabilities, ControllerGetCapabilities,
	ControllerPublishVolume, ControllerUnpublishVolume, ListVolumes,
	CreateVolume, DeleteVolume, ValidateVolumeCapabilities,
}

func (m Method) known() bool { return slices.Contains(methods, m) }

// attaches reports whether the method is one of the two that attach and detach.
func (m Method) attaches() bool {
	return m == ControllerPublishVolume || m == ControllerUnpublishVolume
}
