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

// ListVolumes implements csi.ControllerServer. Pages are in the order of the
// volume ids, so that volumes that come and go between two pages make no other
// volume appear twice or not at all.
func (b *Backend) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	resp := &csi.ListVolumesResponse{}
	err := b.serve(ctx, request{method: ListVolumes, message: req}, func(c *call) (bool, error) {
		if err := b.require(c, ListVolumesRPC); err != nil {
			return false, err
		}
		return false, b.list(req, resp)
	})
	return answer(resp, err)
}

// tokenPrefix stands before the last volume id of the page before.
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
		e := &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id, CapacityBytes: v.capacity}}
		if b.behaviour.has(ListVolumesPublishedNodes) {
			e.Status = &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: slices.Sorted(maps.Keys(v.nodes))}
		}
		resp.Entries = append(resp.Entries, e)
	}
	return nil
}

// CreateVolume implements csi.ControllerServer.
func (b *Backend) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	resp := &csi.CreateVolumeResponse{}
	r := request{method: CreateVolume, message: req}
	err := b.serve(ctx, r, func(c *call) (bool, error) {
		if err := b.require(c, CreateDeleteVolume); err != nil {
			return false, err
		}
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
	return answer(resp, err)
}

// DeleteVolume implements csi.ControllerServer.
func (b *Backend) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	r := request{method: DeleteVolume, volume: req.GetVolumeId(), message: req}
	err := b.serve(ctx, r, func(c *call) (bool, error) {
		if err := b.require(c, CreateDeleteVolume); err != nil {
			return false, err
		}
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
	return answer(&csi.DeleteVolumeResponse{}, err)
}

// ValidateVolumeCapabilities implements csi.ControllerServer. Every volume can
// be used in every way.
func (b *Backend) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	resp := &csi.ValidateVolumeCapabilitiesResponse{}
	r := request{method: ValidateVolumeCapabilities, volume: req.GetVolumeId(), message: req}
	err := b.serve(ctx, r, func(c *call) (bool, error) {
		if err := b.require(c, ControllerService); err != nil {
			return false, err
		}
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
	return answer(resp, err)
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
