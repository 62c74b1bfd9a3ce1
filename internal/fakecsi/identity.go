package fakecsi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Probe implements csi.IdentityServer.
func (b *Backend) Probe(ctx context.Context, req *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	resp := &csi.ProbeResponse{}
	err := b.serve(ctx, request{method: Probe, message: req}, func(*call) (bool, error) {
		resp.Ready = wrapperspb.Bool(!b.behaviour.notReady)
		return false, nil
	})
	return answer(resp, err)
}

// GetPluginInfo implements csi.IdentityServer.
func (b *Backend) GetPluginInfo(ctx context.Context, req *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	resp := &csi.GetPluginInfoResponse{}
	err := b.serve(ctx, request{method: GetPluginInfo, message: req}, func(*call) (bool, error) {
		resp.Name, resp.VendorVersion = b.behaviour.name, b.version
		return false, nil
	})
	return answer(resp, err)
}

// GetPluginCapabilities implements csi.IdentityServer.
func (b *Backend) GetPluginCapabilities(ctx context.Context, req *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	resp := &csi.GetPluginCapabilitiesResponse{}
	err := b.serve(ctx, request{method: GetPluginCapabilities, message: req}, func(*call) (bool, error) {
		resp.Capabilities = pluginCapabilities(b.behaviour.capabilities)
		return false, nil
	})
	return answer(resp, err)
}

// answer is the response without an error, and otherwise the error alone: gRPC
// callers in the same process must see what callers on a socket see.
func answer[R any](resp *R, err error) (*R, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}
