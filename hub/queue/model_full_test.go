package queue_test

import (
	"slices"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
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

// publish has the storage system answer the publish of a running item.
func (m *model) publish(r *run) {
	n := m.small[r.node]
	if n == nil || r.lane != queue.AttachLane && r.lane != queue.DriftLane || r.answered {
		return
	}
	r.answered = true
	if n.volumes == 0 {
		n.volumes++
		n.expected++ // a try that succeeds lets two more go
		m.queue.Published(r.item)
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
	m.queue.Refused(r.item)
	if most := n.expected + 1 + int(time.Since(n.since)/modelPause); n.refused > most {
		m.t.Fatalf("%s has refused %d publishes, of which %d were to be expected", r.node, n.refused, most)
	}
}

// unpublish has the storage system detach a volume from a small node.
func (m *model) unpublish(node string) {
	if n := m.small[node]; n != nil && n.volumes > 0 {
		n.volumes--
		n.expected++
		m.queue.DetachedFrom(node)
	}
}

// changeNode changes the limit of a node, as the cluster sees it.
func (m *model) changeNode(node string) {
	if n := m.small[node]; n != nil {
		n.expected++
		m.queue.NodeChanged(node)
	}
}

func (m *model) isFull(node string) bool {
	return slices.ContainsFunc(m.queue.FullNodes(), func(n queue.FullNode) bool { return n.Node == node })
}
