package volume

import "github.com/csi-attach-hub/csi-attach-hub/hub/attach"

// Belief is how sure it is that a volume is published at a target.
type Belief int8

const (
	Unknown     Belief = iota // nothing was called, and no object records anything
	Uncertain                 // ControllerPublishVolume was called, and has not succeeded so far
	Published                 // it succeeded, and the status does not say so yet
	Recorded                  // the status, or another object, says so
	Unpublished               // ControllerUnpublishVolume succeeded after it
)

// Publication is what this process believes about a volume at one target. The zero value knows
// nothing. Publications are plain values, except for what is never compared: the publish context
// until it is in the status, and the secrets of the last publish that succeeded, for an unpublish
// when the Secret is gone (rook issue 16956). These are kept in memory only.
type Publication struct {
	attach.Record
	Belief  Belief
	Context map[string]string
	Secrets map[string]string
}

// MayBePublished reports whether the volume may be published at the target: a publish succeeded,
// or ended in an error or a timeout, which prove nothing, and no unpublish has succeeded since.
func (p *Publication) MayBePublished() bool {
	return p.Belief == Uncertain || p.Belief == Published || p.Belief == Recorded
}

// restore takes over what objects record, where this process knows nothing.
func (p *Publication) restore(r attach.Record) {
	if p.Belief == Unknown {
		*p = Publication{Record: r, Belief: Recorded}
	}
}

// nodesOf returns the mode in which a volume was published last, as far as known.
func (p *Publication) nodesOf(handle string) attach.NodeMode {
	if p.Target.VolumeHandle != handle {
		return attach.UnknownNodes
	}
	return p.Nodes
}

// isUnpublished reports whether an unpublish at a target has succeeded, and nothing was called
// since.
func (p *Publication) isUnpublished(t attach.Target) bool {
	return p.Belief == Unpublished && p.Target == t
}
