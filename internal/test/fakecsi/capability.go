package fakecsi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Capability is something that the driver announces, named as in the CSI
// specification: the plugin's CONTROLLER_SERVICE or an RPC of the controller.
type Capability string

// The capabilities that a Backend can have.
const (
	ControllerService         Capability = "CONTROLLER_SERVICE"
	PublishUnpublishVolume    Capability = "PUBLISH_UNPUBLISH_VOLUME"
	PublishReadonly           Capability = "PUBLISH_READONLY"
	ListVolumesRPC            Capability = "LIST_VOLUMES"
	ListVolumesPublishedNodes Capability = "LIST_VOLUMES_PUBLISHED_NODES"
	SingleNodeMultiWriter     Capability = "SINGLE_NODE_MULTI_WRITER"
	CreateDeleteVolume        Capability = "CREATE_DELETE_VOLUME"
)

var capabilities = []Capability{
	ControllerService, PublishUnpublishVolume, PublishReadonly, ListVolumesRPC,
	ListVolumesPublishedNodes, SingleNodeMultiWriter, CreateDeleteVolume,
}

// DefaultCapabilities returns what a driver announces that attaches, lists its
// attachments and does not provision. The caller owns the slice.
func DefaultCapabilities() []Capability {
	return []Capability{
		ControllerService, PublishUnpublishVolume, PublishReadonly, ListVolumesRPC,
		ListVolumesPublishedNodes, SingleNodeMultiWriter,
	}
}

// checkCapabilities rejects names that a Backend cannot have.
func checkCapabilities(cs []Capability) error {
	for _, c := range cs {
		if !slices.Contains(capabilities, c) {
			return fmt.Errorf("unknown capability %q: choose from %s", c, joinStrings(capabilities))
		}
	}
	return nil
}

func joinStrings[S ~string](in []S) string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return strings.Join(out, ", ")
}

// pluginCapabilities returns the answer to GetPluginCapabilities.
func pluginCapabilities(cs []Capability) []*csi.PluginCapability {
	if !slices.Contains(cs, ControllerService) {
		return nil
	}
	return []*csi.PluginCapability{{
		Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		},
	}}
}

// controllerCapabilities returns the answer to ControllerGetCapabilities.
func controllerCapabilities(cs []Capability) []*csi.ControllerServiceCapability {
	var out []*csi.ControllerServiceCapability
	for _, c := range cs {
		rpc, ok := csi.ControllerServiceCapability_RPC_Type_value[string(c)]
		if !ok {
			continue // of the plugin, not of the controller
		}
		out = append(out, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{
				Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_Type(rpc)},
			},
		})
	}
	return out
}
