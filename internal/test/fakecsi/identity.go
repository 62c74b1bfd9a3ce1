package fakecsi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
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
)

// DefaultCapabilities returns all of them. The caller owns the slice.
func DefaultCapabilities() []Capability {
	return []Capability{
		ControllerService, PublishUnpublishVolume, PublishReadonly, ListVolumesRPC,
		ListVolumesPublishedNodes, SingleNodeMultiWriter,
	}
}

// checkCapabilities rejects names that a Backend cannot have.
func checkCapabilities(cs []Capability) error {
	for _, c := range cs {
		if !slices.Contains(DefaultCapabilities(), c) {
			return fmt.Errorf("unknown capability %q: choose from %s", c, joinStrings(DefaultCapabilities()))
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

// Probe implements csi.IdentityServer.
func (b *Backend) Probe(ctx context.Context, req *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return serve(ctx, b, request{method: Probe, message: req}, func(_ *call, resp *csi.ProbeResponse) (bool, error) {
		resp.Ready = wrapperspb.Bool(!b.behaviour.notReady)
		return false, nil
	})
}

// GetPluginInfo implements csi.IdentityServer.
func (b *Backend) GetPluginInfo(ctx context.Context, req *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return serve(ctx, b, request{method: GetPluginInfo, message: req}, func(_ *call, resp *csi.GetPluginInfoResponse) (bool, error) {
		resp.Name, resp.VendorVersion = b.behaviour.name, b.version
		return false, nil
	})
}

// GetPluginCapabilities implements csi.IdentityServer.
func (b *Backend) GetPluginCapabilities(ctx context.Context, req *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return serve(ctx, b, request{method: GetPluginCapabilities, message: req}, func(_ *call, resp *csi.GetPluginCapabilitiesResponse) (bool, error) {
		resp.Capabilities = pluginCapabilities(b.behaviour.capabilities)
		return false, nil
	})
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (b *Backend) ControllerGetCapabilities(ctx context.Context, req *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	return serve(ctx, b, request{method: ControllerGetCapabilities, needs: ControllerService, message: req}, func(_ *call, resp *csi.ControllerGetCapabilitiesResponse) (bool, error) {
		resp.Capabilities = controllerCapabilities(b.behaviour.capabilities)
		return false, nil
	})
}
