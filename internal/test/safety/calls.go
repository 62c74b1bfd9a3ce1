package safety

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
)

// Method is what a call asks for.
type Method string

const (
	Publish   Method = "ControllerPublishVolume"
	Unpublish Method = "ControllerUnpublishVolume"
)

// Call is a publish or an unpublish.
type Call struct {
	Method Method
	Place
	// Shared says whether the volume may be at many nodes, as far as its driver or its caller knows.
	Shared Known
}

func (c Call) String() string { return fmt.Sprintf("%s %v", c.Method, c.Place) }

// One returns whether a call may begin while others are in flight.
func One(c Call, inFlight []Call) error {
	single, atNode := c.Shared == No, 0
	for _, o := range inFlight {
		single = single || o.Shared == No
		if o.Node == c.Node {
			atNode++
		}
	}
	if len(inFlight) > 0 && single || atNode > 0 {
		return OneCall.broken(c.Volume, "%v begins while %v are in flight", c, inFlight)
	}
	return nil
}

// Elsewhere returns whether a call may begin while the volume is attached at other nodes, all by calls. refused says whether
// the driver has refused to detach it there.
func Elsewhere(c Call, others []Place, refused func(Place) bool) error {
	i := slices.IndexFunc(others, func(p Place) bool { return p.Node != c.Node && !refused(p) })
	if c.Method != Publish || c.Shared == Yes || i < 0 {
		return nil
	}
	return OneNode.broken(c.Volume, "%v begins while it is attached to %s, and no detach there was refused", c, others[i].Node)
}

// Due returns whether a call may begin while unpublishes are due that have not been tried.
func Due(c Call, due []Place) error {
	for _, p := range due {
		if c.Method == Publish && c.Shared != Yes && p.Volume == c.Volume && p.Node != c.Node {
			return DetachFirst.broken(c.Volume, "%v begins while its detach from %s is due", c, p.Node)
		}
	}
	return nil
}

// Unannounced is for a call that uses what its driver does not announce.
func Unannounced(what string) error {
	return Announced.broken("", "the driver does not announce it: %s", what)
}

// Detach returns whether a call may detach what VolumeAttachments say.
func Detach(c Call, attachments []Attachment) error {
	for _, va := range attachments {
		if c.Method == Unpublish && va.Noted == c.Place && va.Attached && va.Guarded && !va.Deleting {
			return Wanted.broken(c.Volume, "%v detaches it while VolumeAttachment %s reports it as attached and is not being deleted", c, va.Name)
		}
	}
	return nil
}

// Use returns whether a call may detach what a node uses. deleted says whether the deletion of a VolumeAttachment there asks
// for it.
func Use(c Call, used, deleted bool) error {
	if c.Method == Unpublish && used && !deleted {
		return InUse.broken(c.Volume, "%v: the node uses it", c)
	}
	return nil
}

// Need returns whether a call is needed: the VolumeAttachment that it is for is there, and has not recorded its success.
func Need(c Call, attachment *Attachment) error {
	switch {
	case attachment == nil:
		return Needless.broken(c.Volume, "%v: the VolumeAttachment is gone", c)
	case c.Method == Publish && attachment.Attached && attachment.Guarded && !attachment.Deleting && attachment.Noted == c.Place:
		return Needless.broken(c.Volume, "%v: %s has recorded it as attached", c, attachment.Name)
	case c.Method == Unpublish && !attachment.Guarded:
		return Needless.broken(c.Volume, "%v: %s has recorded it as detached", c, attachment.Name)
	}
	return nil
}

// AtMost returns whether something was done more often than is needed.
func AtMost(what string, n, most int) error {
	if n > most {
		return Needless.broken("", "%s: %d times, and at most %d are needed", what, n, most)
	}
	return nil
}

// Refusal is what has become of the last calls at a place: whether the driver has refused to detach it.
type Refusal struct {
	answered bool
	lost     int // unpublishes in a row without an answer
}

// disconnects is how often in a row a connection may end during a call before that counts as an answer of the driver
// (package reconcile).
const disconnects = 3

// After returns the refusal after one more call has ended, with Canceled if its caller has left before its deadline, as
// callers do whose connection ends. That is no answer:
// the hub tries again before it lets the volume go elsewhere, but lets a volume go whose connection ends each time.
func (r Refusal) After(m Method, code codes.Code) Refusal {
	if m != Unpublish || code == codes.OK {
		return Refusal{}
	}
	if code == codes.Canceled {
		r.lost++
	} else {
		r.answered = true
	}
	return r
}

// Refused reports whether the driver has refused the detach.
func (r Refusal) Refused() bool { return r.answered || r.lost > disconnects }
