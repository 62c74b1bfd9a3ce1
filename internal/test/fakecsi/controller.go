package fakecsi

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/safety"
)

// ControllerPublishVolume implements csi.ControllerServer.
func (b *Backend) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	r := request{
		method: ControllerPublishVolume, needs: PublishUnpublishVolume,
		volume: req.GetVolumeId(), node: req.GetNodeId(), readonly: req.GetReadonly(),
		accessMode: attachmentFor(req).AccessMode, message: req,
	}
	return serve(ctx, b, r, func(c *call, resp *csi.ControllerPublishVolumeResponse) (bool, error) {
		if err := b.checkPublish(c, req); err != nil {
			return false, err
		}
		changed, err := b.publish(c, attachmentFor(req))
		if err == nil {
			resp.PublishContext = b.publishContext(req.GetVolumeId())
		}
		return changed, err
	})
}

// ControllerUnpublishVolume implements csi.ControllerServer.
func (b *Backend) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	r := request{
		method: ControllerUnpublishVolume, needs: PublishUnpublishVolume, volume: req.GetVolumeId(), node: req.GetNodeId(), message: req,
	}
	return serve(ctx, b, r, func(_ *call, _ *csi.ControllerUnpublishVolumeResponse) (bool, error) {
		if req.GetVolumeId() == "" {
			return false, missing("volume_id")
		}
		changes := b.storage.detach(req.GetVolumeId(), req.GetNodeId())
		b.record(changes)
		return len(changes) > 0, nil
	})
}

// checkPublish checks a publish, but not against existing attachments.
func (b *Backend) checkPublish(c *call, req *csi.ControllerPublishVolumeRequest) error {
	switch {
	case req.GetVolumeId() == "":
		return missing("volume_id")
	case req.GetNodeId() == "":
		return missing("node_id")
	case req.GetVolumeCapability() == nil:
		return missing("volume_capability")
	}
	if err := checkCapability(req.GetVolumeCapability()); err != nil {
		return err
	}
	if req.GetReadonly() && !b.behaviour.has(PublishReadonly) {
		return b.notAnnounced(c, codes.InvalidArgument, "readonly without "+string(PublishReadonly))
	}
	switch req.GetVolumeCapability().GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		if !b.behaviour.has(SingleNodeMultiWriter) {
			return b.notAnnounced(c, codes.InvalidArgument, c.AccessMode+" without "+string(SingleNodeMultiWriter))
		}
	}
	return nil
}

// publish attaches the call's volume to its node.
func (b *Backend) publish(c *call, want Attachment) (bool, error) {
	b.storage.add(c.Volume)
	if have, ok := b.storage.volumes[c.Volume][c.Node]; ok {
		if have.Foreign {
			b.record(b.storage.attach(c.Volume, c.Node, want))
			return false, nil
		}
		if have != want {
			return false, status.Errorf(codes.AlreadyExists, "volume %s is published to node %s in another way: %+v", c.Volume, c.Node, have)
		}
		return false, nil
	}
	if others := b.storage.conflict(c.Volume, c.Node, want, true); len(others) > 0 {
		b.books.judgeElsewhere(c, b.storage.conflict(c.Volume, c.Node, want, false))
		return false, status.Errorf(codes.FailedPrecondition, "volume %s is published to another node: %s", c.Volume, strings.Join(others, ", "))
	}
	if limit := b.behaviour.maxPerNode; limit > 0 && b.storage.onNode[c.Node] >= limit {
		return false, status.Errorf(codes.ResourceExhausted, "node %s has %d volumes, which is the limit", c.Node, limit)
	}
	b.record(b.storage.attach(c.Volume, c.Node, want))
	return true, nil
}

func (b *Backend) publishContext(volume string) map[string]string {
	if b.behaviour.publishContext != nil {
		return maps.Clone(b.behaviour.publishContext)
	}
	return map[string]string{"devicePath": "/dev/disk/by-id/" + volume}
}

// require answers Unimplemented if the driver does not announce the capability.
// Everything of the controller also requires the CONTROLLER_SERVICE. The Identity
// service has no capability: nothing is required of it.
func (b *Backend) require(c *call, capability Capability) error {
	if capability == "" {
		return nil
	}
	for _, need := range []Capability{ControllerService, capability} {
		if !b.behaviour.has(need) {
			return b.notAnnounced(c, codes.Unimplemented, string(c.Method)+" without "+string(need))
		}
	}
	return nil
}

// notAnnounced books a violation: the caller used what the driver does not announce.
func (b *Backend) notAnnounced(c *call, code codes.Code, what string) error {
	b.books.judge(c, safety.Unannounced(what))
	return status.Errorf(code, "the driver does not announce it: %s", what)
}

func missing(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s is missing", field)
}

// checkCapability reports the first missing field of a volume capability.
func checkCapability(vc *csi.VolumeCapability) error {
	if vc.GetBlock() == nil && vc.GetMount() == nil {
		return missing("volume_capability.access_type")
	}
	if vc.GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_UNKNOWN {
		return missing("volume_capability.access_mode")
	}
	return nil
}

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
		e := &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id}}
		if b.behaviour.has(ListVolumesPublishedNodes) {
			e.Status = &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: slices.Sorted(maps.Keys(b.storage.volumes[id]))}
		}
		resp.Entries = append(resp.Entries, e)
	}
	return nil
}
