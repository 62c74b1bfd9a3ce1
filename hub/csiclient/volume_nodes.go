package csiclient

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxVolumeAnswer bounds an answer to ControllerGetVolume, in bytes: 5,000 nodes with node IDs of 50 bytes.
const maxVolumeAnswer = 256 << 10

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
	var answer encodedPage
	err := s.conn.Invoke(ctx, csi.Controller_ControllerGetVolume_FullMethodName, &csi.ControllerGetVolumeRequest{VolumeId: handle}, &answer,
		grpc.ForceCodecV2(newPageCodec()), grpc.MaxCallRecvMsgSize(maxVolumeAnswer))
	if err != nil {
		return PublishedNodes{}, sanitizeError(err)
	}
	defer answer.Free()
	return nodesOf(handle, answer.ReadOnlyData())
}

// nodesOf reads an encoded ControllerGetVolumeResponse. Its fields have the numbers of those of an Entry of ListVolumesResponse.
func nodesOf(handle string, answer []byte) (PublishedNodes, error) {
	l := newListing(NewListingMemory().Share())
	if err := l.add(answer); err != nil {
		return PublishedNodes{}, err
	}
	nodes, found := l.published.compact()[handle]
	if !found {
		return PublishedNodes{}, errOtherVolume
	}
	return nodes, nil
}

// errOtherVolume is the error of an answer that lacks the required volume_id, or has the volume_id of another volume.
var errOtherVolume = status.Error(codes.Internal, "the driver answered without the volume_id of the request")
