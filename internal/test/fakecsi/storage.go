package fakecsi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// volume is one volume of the storage.
type volume struct {
	id       string
	name     string // of CreateVolume; empty for volumes made otherwise
	capacity int64
	// nodes is replaced as a whole on each change: snapshots share it.
	nodes map[string]Attachment
}

// storage is the content of the storage system: a pure state machine without lock,
// clock or I/O. Its methods return every change as records for a StateFile.
type storage struct {
	volumes map[string]*volume
	onNode  map[string]int // volumes attached per node
}

func newStorage() *storage {
	return &storage{volumes: map[string]*volume{}, onNode: map[string]int{}}
}

// add makes the volume unless it exists.
func (s *storage) add(id string) (*volume, []Record) {
	if v, ok := s.volumes[id]; ok {
		return v, nil
	}
	v := &volume{id: id}
	s.volumes[id] = v
	return v, []Record{{Op: opCreate, Volume: id}}
}

// create makes the volume of a name, as CreateVolume does. Its ID depends on the name alone.
func (s *storage) create(name string, limits *csi.CapacityRange) (*volume, []Record, error) {
	sum := sha256.Sum256([]byte(name))
	id := "vol-" + hex.EncodeToString(sum[:10])
	if v, ok := s.volumes[id]; ok {
		if v.capacity < limits.GetRequiredBytes() || limits.GetLimitBytes() > 0 && v.capacity > limits.GetLimitBytes() {
			return nil, nil, status.Errorf(codes.AlreadyExists, "volume %s exists with %d bytes", name, v.capacity)
		}
		return v, nil, nil
	}
	v := &volume{id: id, name: name, capacity: max(limits.GetRequiredBytes(), 1)}
	s.volumes[id] = v
	return v, []Record{{Op: opCreate, Volume: id, Name: name, Capacity: v.capacity}}, nil
}

// remove removes the volume with its attachments.
func (s *storage) remove(id string) []Record {
	v, ok := s.volumes[id]
	if !ok {
		return nil
	}
	out := s.detach(id, "")
	delete(s.volumes, v.id)
	return append(out, Record{Op: opDelete, Volume: id})
}

// attach sets the attachment to the node, without any check.
func (s *storage) attach(v *volume, node string, a Attachment) []Record {
	if _, ok := v.nodes[node]; !ok {
		s.onNode[node]++
	}
	next := make(map[string]Attachment, len(v.nodes)+1)
	maps.Copy(next, v.nodes)
	next[node] = a
	v.nodes = next
	return []Record{{Op: opAttach, Volume: v.id, Node: node, Attachment: &a}}
}

// detach removes the attachment to the node; with an empty node, to every node.
func (s *storage) detach(id, node string) []Record {
	v, ok := s.volumes[id]
	if !ok {
		return nil
	}
	var out []Record
	next := maps.Clone(v.nodes)
	for _, n := range slices.Sorted(maps.Keys(v.nodes)) {
		if node != "" && n != node {
			continue
		}
		delete(next, n)
		if s.onNode[n]--; s.onNode[n] == 0 {
			delete(s.onNode, n)
		}
		out = append(out, Record{Op: opDetach, Volume: id, Node: n})
	}
	v.nodes = next
	return out
}

// conflict returns, sorted, the other nodes to which the volume is attached if a and these attachments exclude each other:
// also those that no call has made, of which no caller knows, or those of calls alone.
func (s *storage) conflict(id, node string, a Attachment, foreign bool) (others []string) {
	v, ok := s.volumes[id]
	if !ok {
		return nil
	}
	single := a.singleNode()
	for n, existing := range v.nodes {
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
func (s *storage) gain(id, node string) []Record {
	v, out := s.add(id)
	if _, ok := v.nodes[node]; ok {
		return out
	}
	a := Attachment{AccessMode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER.String(), Foreign: true}
	for _, n := range slices.Sorted(maps.Keys(v.nodes)) {
		a.AccessMode = v.nodes[n].AccessMode
		break
	}
	return append(out, s.attach(v, node, a)...)
}

// attached returns the attachments by volume and node, without volumes that are
// attached nowhere.
func (s *storage) attached() map[string]map[string]Attachment {
	out := make(map[string]map[string]Attachment)
	for id, v := range s.volumes {
		if len(v.nodes) > 0 {
			out[id] = v.nodes
		}
	}
	return out
}

// apply replays a record of a StateFile.
func (s *storage) apply(r Record) error {
	switch r.Op {
	case opCreate:
		if _, ok := s.volumes[r.Volume]; !ok {
			s.volumes[r.Volume] = &volume{id: r.Volume, name: r.Name, capacity: r.Capacity}
		}
	case opDelete:
		s.remove(r.Volume)
	case opAttach:
		if r.Attachment == nil {
			return fmt.Errorf("record %q of volume %q has no attachment", r.Op, r.Volume)
		}
		v, _ := s.add(r.Volume)
		s.attach(v, r.Node, *r.Attachment)
	case opDetach:
		s.detach(r.Volume, r.Node)
	default:
		return fmt.Errorf("unknown record %q", r.Op)
	}
	return nil
}

// records returns the shortest list of records that makes this storage.
func (s *storage) records() []Record {
	var out []Record
	for _, id := range slices.Sorted(maps.Keys(s.volumes)) {
		v := s.volumes[id]
		out = append(out, Record{Op: opCreate, Volume: id, Name: v.name, Capacity: v.capacity})
		for _, n := range slices.Sorted(maps.Keys(v.nodes)) {
			a := v.nodes[n]
			out = append(out, Record{Op: opAttach, Volume: id, Node: n, Attachment: &a})
		}
	}
	return out
}
