package csiclient

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// VolumeHealth is one problem that a driver reports about a volume.
type VolumeHealth struct {
	Status  string // as the CSI spec names it: DEGRADED, INACCESSIBLE or DATA_LOSS
	Reason  string // in CamelCase, as the driver names it; sanitized, of any length
	Message string // for people; sanitized, of any length, may be empty
}

// maxHealth bounds the problems of one volume that are read.
const maxHealth = 16

// VolumeHealth asks the driver once about the health of a volume (ControllerGetVolumeHealth, CSI 1.13). The driver
// must have the capability GetVolumeHealth. The result has at most maxHealth problems, and is empty if the driver
// knows of none. Its texts together have less than 64 KiB: the caller truncates them after it has removed secrets.
// Statuses that this version of the CSI spec does not define are left out, as the spec demands. The error is a
// gRPC status with a sanitized message of any length: NotFound if the driver does not know the volume, Unavailable if the
// Session has ended. VolumeHealth blocks until the answer, or until ctx ends.
func (s *Session) VolumeHealth(ctx context.Context, handle string) ([]VolumeHealth, error) {
	answer, err := csi.NewControllerClient(s.conn).ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
	if err != nil {
		return nil, sanitizeError(err)
	}
	if answer.GetVolumeHealth().GetVolumeId() != handle {
		return nil, errOtherVolume
	}
	var problems []VolumeHealth
	for _, entry := range answer.GetVolumeHealth().GetHealthStatuses() {
		name, known := csi.VolumeHealthErrorType_name[int32(entry.GetStatus())]
		if !known || entry.GetStatus() == csi.VolumeHealthErrorType_UNKNOWN_VOLUME_HEALTH_TYPE {
			continue
		}
		if len(problems) == maxHealth {
			break
		}
		problems = append(problems, VolumeHealth{Status: name, Reason: Sanitize(entry.GetReason()), Message: Sanitize(entry.GetMessage())})
	}
	return problems, nil
}

// errOtherVolume is the error of an answer that lacks the required volume_id, or has the volume_id of another volume.
var errOtherVolume = status.Error(codes.Internal, "the driver answered without the volume_id of the request")
