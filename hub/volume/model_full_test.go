package volume_test

import (
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// modelPause is how long the fallback of the model waits at a full node.
const modelPause = time.Minute

// smallNodes are the nodes of the model that can have one volume, as the storage system knows them.
type smallNodes map[string]*smallNode

type smallNode struct {
	since    time.Time
	volumes  int
	refused  int // publishes
	expected int // publishes that may have been refused so far, without those of the fallback
}

// publish has the storage system answer the publish of a running entry.
func (m *model) publish(r *run) {
	n := m.small[r.node]
	if n == nil || r.lane != volume.AttachLane && r.lane != volume.DriftLane || r.answered {
		return
	}
	r.answered = true
	if n.volumes == 0 {
		n.volumes++
		n.expected++ // a try that succeeds lets two more go
		m.table.Published(r.entry, volume.Succeeded)
		return
	}
	if !m.isFull(r.node) { // all that run there now may be refused
		for _, other := range m.running {
			if other.node == r.node {
				n.expected++
			}
		}
		n.expected++
	}
	n.refused++
	m.table.Published(r.entry, volume.NoPlace)
	if most := n.expected + 1 + int(time.Since(n.since)/modelPause); n.refused > most {
		m.t.Fatalf("%s has refused %d publishes, of which %d were to be expected", r.node, n.refused, most)
	}
}

// unpublish has the storage system detach a volume from a small node.
func (m *model) unpublish(node string) {
	if n := m.small[node]; n != nil && n.volumes > 0 {
		n.volumes--
		n.expected++
		m.table.DetachedFrom(node)
	}
}

// changeNode changes the limit of a node, as the cluster sees it.
func (m *model) changeNode(node string) {
	if n := m.small[node]; n != nil {
		n.expected++
		m.table.NodeChanged(node)
	}
}

func (m *model) isFull(node string) bool {
	return slices.ContainsFunc(m.table.FullNodes(), func(n volume.FullNode) bool { return n.Node == node })
}
