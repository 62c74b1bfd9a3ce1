package drift

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nodes has the Nodes that may use volumes as the API server had them last. A thousand volumes of one node may be dangling: one
// read tells of all. It is safe for concurrent use.
type Nodes struct {
	Read func(ctx context.Context, name string) (*corev1.Node, error) // from the API server; nil: there is none

	rounds atomic.Uint64
	read   sync.Map // of *readNode, by name
}

// readNode is a Node as it was read last.
type readNode struct {
	mu    sync.Mutex // held while it is read
	round uint64
	at    time.Time
	node  *corev1.Node // with status.volumesInUse and conditions alone
	err   error
}

// Round begins a round. Get with its number reads each Node at most once, after the round has begun.
func (n *Nodes) Round() uint64 { return n.rounds.Add(1) }

func (n *Nodes) of(name string) *readNode {
	r, _ := n.read.LoadOrStore(name, &readNode{})
	return r.(*readNode)
}

// Get returns a Node, nil if there is none. It blocks until the API server has answered.
func (n *Nodes) Get(ctx context.Context, name string, round uint64) (*corev1.Node, error) {
	r := n.of(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.round >= round {
		return r.node, r.err
	}
	r.round, r.at = n.rounds.Load(), time.Now()
	if r.node, r.err = n.Read(ctx, name); r.node != nil {
		r.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{VolumesInUse: r.node.Status.VolumesInUse, Conditions: r.node.Status.Conditions}}
	}
	return r.node, r.err
}

// Last returns a Node that was read after a time, nil if there is none. That a volume is in use may be known late, because that only
// delays its detach; that it is not is read anew.
func (n *Nodes) Last(name string, after time.Time) *corev1.Node {
	r := n.of(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.After(after) {
		return nil
	}
	return r.node
}
