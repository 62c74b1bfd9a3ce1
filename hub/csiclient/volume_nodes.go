package csiclient

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// VolumeNodes asks the driver once where it has published a volume (ControllerGetVolume). The driver must have the
// capability GetVolume. The error is a gRPC status with a sanitized message of any length: NotFound if the driver does
// not know the volume, Unavailable if the Session has ended. VolumeNodes blocks until the answer, or until ctx ends.
//
// According to the CSI spec the node IDs may include nodes to which the volume is not published.
func (s *Session) VolumeNodes(ctx context.Context, handle string) (PublishedNodes, error) {
	if err := s.begin(); err != nil {
		return PublishedNodes{}, err
	}
	defer s.end()
	answer, err := csi.NewControllerClient(s.conn).ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: handle})
	if err != nil {
		return PublishedNodes{}, sanitizeError(err)
	}
	if answer.GetVolume().GetVolumeId() != handle {
		return PublishedNodes{}, errOtherVolume
	}
	ids := slices.Sorted(slices.Values(answer.GetStatus().GetPublishedNodeIds()))
	return PublishedNodes{IDs: slices.Compact(ids), Unknown: answer.GetStatus() == nil}, nil
}

// errOtherVolume is the error of an answer that lacks the required volume_id, or has the volume_id of another volume.
var errOtherVolume = status.Error(codes.Internal, "the driver answered without the volume_id of the request")
