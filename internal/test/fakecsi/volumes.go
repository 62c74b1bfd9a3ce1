package fakecsi

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ListVolumes implements csi.ControllerServer. Pages are in the order of the volume
// IDs: whatever volumes come and go between two pages, each other volume appears
// exactly once.
func (b *Backend) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return serve(ctx, b, request{method: ListVolumes, needs: ListVolumesRPC, message: req}, func(_ *call, resp *csi.ListVolumesResponse) (bool, error) {
		return false, b.list(req, resp)
	})
}

// tokenPrefix precedes the last volume ID of the page before in a token.
const tokenPrefix = "after:"

func (b *Backend) list(req *csi.ListVolumesRequest, resp *csi.ListVolumesResponse) error {
	if req.GetMaxEntries() < 0 {
		return status.Errorf(codes.InvalidArgument, "max_entries is negative: %d", req.GetMaxEntries())
	}
	after, ok := strings.CutPrefix(req.GetStartingToken(), tokenPrefix)
	if !ok && req.GetStartingToken() != "" {
		return status.Errorf(codes.Aborted, "starting_token %q is not of this driver", req.GetStartingToken())
	}
	ids := slices.Sorted(maps.Keys(b.storage.volumes))
	if ok {
		at, found := slices.BinarySearch(ids, after)
		if found {
			at++
		}
		ids = ids[at:]
	}
	if n := int(req.GetMaxEntries()); n > 0 && len(ids) > n {
		ids = ids[:n]
		resp.NextToken = tokenPrefix + ids[n-1]
	}
	for _, id := range ids {
		v := b.storage.volumes[id]
		e := &csi.ListVolumesResponse_Entry{Volume: v.message()}
		if b.behaviour.has(ListVolumesPublishedNodes) {
			e.Status = &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: v.nodeIDs()}
		}
		resp.Entries = append(resp.Entries, e)
	}
	return nil
}

// message returns the volume as answers have it.
func (v *volume) message() *csi.Volume {
	return &csi.Volume{VolumeId: v.id, CapacityBytes: v.capacity}
}

// nodeIDs returns the nodes to which the volume is attached, sorted.
func (v *volume) nodeIDs() []string { return slices.Sorted(maps.Keys(v.nodes)) }

// CreateVolume implements csi.ControllerServer.
func (b *Backend) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	r := request{method: CreateVolume, needs: CreateDeleteVolume, message: req}
	return serve(ctx, b, r, func(_ *call, resp *csi.CreateVolumeResponse) (bool, error) {
		if req.GetName() == "" {
			return false, missing("name")
		}
		if err := checkCapabilityList(req.GetVolumeCapabilities()); err != nil {
			return false, err
		}
		v, rs, err := b.storage.create(req.GetName(), req.GetCapacityRange())
		if err != nil {
			return false, err
		}
		b.record(rs)
		resp.Volume = &csi.Volume{VolumeId: v.id, CapacityBytes: v.capacity}
		return len(rs) > 0, nil
	})
}

// DeleteVolume implements csi.ControllerServer.
func (b *Backend) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	r := request{method: DeleteVolume, needs: CreateDeleteVolume, volume: req.GetVolumeId(), message: req}
	return serve(ctx, b, r, func(_ *call, _ *csi.DeleteVolumeResponse) (bool, error) {
		if req.GetVolumeId() == "" {
			return false, missing("volume_id")
		}
		if v, ok := b.storage.volumes[req.GetVolumeId()]; ok && len(v.nodes) > 0 {
			return false, status.Errorf(codes.FailedPrecondition, "volume %s is published to %d nodes", v.id, len(v.nodes))
		}
		rs := b.storage.remove(req.GetVolumeId())
		b.record(rs)
		return len(rs) > 0, nil
	})
}

// ValidateVolumeCapabilities implements csi.ControllerServer. Every volume has
// every capability.
func (b *Backend) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	r := request{method: ValidateVolumeCapabilities, needs: ControllerService, volume: req.GetVolumeId(), message: req}
	return serve(ctx, b, r, func(_ *call, resp *csi.ValidateVolumeCapabilitiesResponse) (bool, error) {
		if req.GetVolumeId() == "" {
			return false, missing("volume_id")
		}
		if err := checkCapabilityList(req.GetVolumeCapabilities()); err != nil {
			return false, err
		}
		if _, ok := b.storage.volumes[req.GetVolumeId()]; !ok {
			return false, status.Errorf(codes.NotFound, "volume %s does not exist", req.GetVolumeId())
		}
		resp.Confirmed = &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
		}
		return false, nil
	})
}

func checkCapabilityList(vcs []*csi.VolumeCapability) error {
	if len(vcs) == 0 {
		return missing("volume_capabilities")
	}
	for _, vc := range vcs {
		if err := checkCapability(vc); err != nil {
			return err
		}
	}
	return nil
}
