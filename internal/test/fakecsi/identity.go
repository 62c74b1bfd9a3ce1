package fakecsi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

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
