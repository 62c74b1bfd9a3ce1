package volume

import "github.com/csi-attach-hub/csi-attach-hub/hub/attach"

// Belief is what is known about whether a volume is published at a target.
type Belief int8

const (
	Unknown     Belief = iota // nothing was called, and no object records anything
	Uncertain                 // ControllerPublishVolume was called, and has not succeeded
	Published                 // it succeeded, and the status does not record it yet
	Recorded                  // the status, or another object, records it
	Unpublished               // ControllerUnpublishVolume succeeded after it
)

// Publication is what this process believes about a volume at one target. The zero value knows nothing.
type Publication struct {
	attach.Record
	Belief Belief
	// NodeFull: it is Uncertain, and the last answer to the publish was that the node has no place.
	NodeFull bool
	// Context is the publish context, until it is in the status. Secrets are those of the last publish
	// that succeeded, for an unpublish when the Secret is gone (rook issue 16956); see DropSecrets. Both
	// are kept in memory only, and never compared.
	Context, Secrets map[string]string
}

// maxKeptContext bounds the publish contexts that are kept after a failed write of the status, in bytes. The CSI spec
// allows 4 KiB.
const maxKeptContext = 16 << 10

// keepsContext reports whether the publish context is kept until the next try to write it into the status. Thousands
// of volumes may wait for that: for a large context the driver is called again.
func (p *Publication) keepsContext() bool {
	size := 0
	for key, value := range p.Context {
		size += len(key) + len(value)
	}
	return size <= maxKeptContext
}

// MayBePublished reports whether the volume may be published at the target: a publish succeeded,
// or ended in an error or a timeout, which prove nothing, and no unpublish has succeeded since.
func (p *Publication) MayBePublished() bool {
	return p.Belief == Uncertain || p.Belief == Published || p.Belief == Recorded
}

// restore takes the record of objects as the publication, if this process knows nothing.
func (p *Publication) restore(r attach.Record) {
	if p.Belief == Unknown {
		*p = Publication{Record: r, Belief: Recorded}
	}
}

// nodesOf returns the mode in which the volume with a handle was published last, if that is known.
func (p *Publication) nodesOf(handle string) attach.NodeMode {
	if p.Target.VolumeHandle != handle {
		return attach.UnknownNodes
	}
	return p.Nodes
}

// isUnpublished reports whether an unpublish at a target has succeeded, and no call has begun since.
func (p *Publication) isUnpublished(t attach.Target) bool {
	return p.Belief == Unpublished && p.Target == t
}
