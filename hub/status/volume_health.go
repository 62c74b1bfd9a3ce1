package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// VolumeHealth is what a driver reports about the health of a volume (GET_VOLUME_HEALTH of CSI 1.13). It is not the
// Health of a VolumeAttachment.
type VolumeHealth struct {
	Asked    time.Time       `json:"asked"`
	Problems []VolumeProblem `json:"problems"` // none: the driver knows of none
}

// VolumeProblem is a problem of a volume. Its texts are the driver's own: hostile.
type VolumeProblem struct {
	Status  string `json:"status"`           // as the CSI specification names it: "INACCESSIBLE"
	Reason  string `json:"reason,omitempty"` // in CamelCase
	Message string `json:"message,omitempty"`
}

// ErrNoAttachment means that a VolumeAttachment does not exist.
var ErrNoAttachment = errors.New("the VolumeAttachment does not exist")

// VolumeHealthReader asks drivers about volumes.
type VolumeHealthReader interface {
	// VolumeHealth asks the driver of a VolumeAttachment about its volume. It blocks for some seconds if the driver is
	// slow, and bounds how often it asks the driver. The error is ErrNoAttachment or safe to show.
	VolumeHealth(ctx context.Context, attachment string) (VolumeHealth, error)
}

// volumeHealth answers /api/v1/volume-health. It has no place among the renderings: a slow driver must not delay the pages.
func (s *site) volumeHealth(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("attachment")
	if name == "" {
		sendJSON(w, failure{http.StatusBadRequest, "give the name of a VolumeAttachment: ?attachment=NAME"})
		return
	}
	switch health, err := s.Volumes.VolumeHealth(r.Context(), name); {
	case errors.Is(err, ErrNoAttachment):
		sendJSON(w, failure{http.StatusNotFound, fmt.Sprintf("VolumeAttachment %q does not exist", name)})
	case err != nil:
		sendJSON(w, failure{http.StatusServiceUnavailable, "ask for the health of the volume: " + err.Error()})
	default:
		sendJSON(w, health)
	}
}
