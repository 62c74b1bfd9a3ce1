package fakecsi

import (
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Attachment is how a volume is attached to one node.
type Attachment struct {
	Readonly   bool   `json:"readonly,omitempty"`
	AccessMode string `json:"accessMode,omitempty"` // as in the CSI specification, e.g. SINGLE_NODE_WRITER
	Block      bool   `json:"block,omitempty"`
	FSType     string `json:"fsType,omitempty"`
	// Foreign is set if Knobs.GainAttachments made the attachment. A publish with any
	// capability adopts it.
	Foreign bool `json:"foreign,omitempty"`
}

func (a Attachment) singleNode() bool { return !strings.HasPrefix(a.AccessMode, "MULTI_NODE_") }

// attachmentFor returns the attachment that a publish asks for. It leaves out mount
// flags, which never make two publishes incompatible.
func attachmentFor(req *csi.ControllerPublishVolumeRequest) Attachment {
	vc := req.GetVolumeCapability()
	return Attachment{
		Readonly:   req.GetReadonly(),
		AccessMode: vc.GetAccessMode().GetMode().String(),
		Block:      vc.GetBlock() != nil,
		FSType:     vc.GetMount().GetFsType(),
	}
}

// volume is one volume of the storage: how it is attached, by node. The map is replaced as a whole on each change: snapshots share it.
type volume map[string]Attachment

// storage is the content of the storage system: a pure state machine without lock,
// clock or I/O. Its methods return every change of what is attached.
type storage struct {
	volumes map[string]volume
	onNode  map[string]int // volumes attached per node
}

func newStorage() *storage {
	return &storage{volumes: map[string]volume{}, onNode: map[string]int{}}
}

// add makes the volume unless it exists.
func (s *storage) add(id string) {
	if _, ok := s.volumes[id]; !ok {
		s.volumes[id] = nil
	}
}

// remove removes the volume with its attachments.
func (s *storage) remove(id string) []Event {
	changes := s.detach(id, "")
	delete(s.volumes, id)
	return changes
}

// attach sets the attachment to the node, without any check.
func (s *storage) attach(id, node string, a Attachment) []Event {
	if _, ok := s.volumes[id][node]; !ok {
		s.onNode[node]++
	}
	next := make(volume, len(s.volumes[id])+1)
	maps.Copy(next, s.volumes[id])
	next[node] = a
	s.volumes[id] = next
	return []Event{{Kind: Attached, Volume: id, Node: node, Foreign: a.Foreign}}
}

// detach removes the attachment to the node; with an empty node, to every node.
func (s *storage) detach(id, node string) []Event {
	if _, ok := s.volumes[id]; !ok {
		return nil
	}
	var changes []Event
	next := maps.Clone(s.volumes[id])
	for _, n := range slices.Sorted(maps.Keys(next)) {
		if node != "" && n != node {
			continue
		}
		delete(next, n)
		if s.onNode[n]--; s.onNode[n] == 0 {
			delete(s.onNode, n)
		}
		changes = append(changes, Event{Kind: Detached, Volume: id, Node: n})
	}
	s.volumes[id] = next
	return changes
}

// conflict returns, sorted, the other nodes to which the volume is attached if a and these attachments exclude each other:
// also those that no call has made, of which no caller knows, or those of calls alone.
func (s *storage) conflict(id, node string, a Attachment, foreign bool) (others []string) {
	single := a.singleNode()
	for n, existing := range s.volumes[id] {
		if n == node || existing.Foreign && !foreign {
			continue
		}
		others = append(others, n)
		single = single || existing.singleNode()
	}
	if !single {
		return nil
	}
	slices.Sort(others)
	return others
}

// gain attaches a volume without a call, in the mode that it already has
// elsewhere.
func (s *storage) gain(id, node string) []Event {
	nodes := s.volumes[id]
	if _, ok := nodes[node]; ok {
		return nil
	}
	a := Attachment{AccessMode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER.String(), Foreign: true}
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		a.AccessMode = nodes[n].AccessMode
		break
	}
	return s.attach(id, node, a)
}

// attached returns the attachments by volume and node, without volumes that are
// attached nowhere.
func (s *storage) attached() map[string]map[string]Attachment {
	out := make(map[string]map[string]Attachment)
	for id, nodes := range s.volumes {
		if len(nodes) > 0 {
			out[id] = nodes
		}
	}
	return out
}
