package drift

import (
	"context"
	"errors"
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
	mu     sync.Mutex
	read   map[string]*readNode // by name, the last that has begun; guarded by mu
	last   map[string]*readNode // that has ended
}

// keptNodes bounds the Nodes that are kept in a term. Without a Node that was read before, it is read once more.
const keptNodes = 1000

// errUnread is what the others get if a read panics: it does not say that the Node is gone.
var errUnread = errors.New("the read has ended without an answer")

// readNode is one read of a Node.
type readNode struct {
	round uint64
	at    time.Time
	done  chan struct{} // closed when it has ended; guards what follows
	node  *corev1.Node  // with status.volumesInUse and conditions alone
	err   error
}

// Round begins a round. Get with its number reads each Node at most once, after the round has begun.
func (n *Nodes) Round() uint64 { return n.rounds.Add(1) }

// Get returns a Node, nil if there is none. It blocks until the API server has answered.
func (n *Nodes) Get(ctx context.Context, name string, round uint64) (*corev1.Node, error) {
	n.mu.Lock()
	r := n.read[name]
	if r != nil && r.round >= round {
		n.mu.Unlock()
		<-r.done
		return r.node, r.err
	}
	if n.read == nil || len(n.read) >= keptNodes {
		n.read, n.last = map[string]*readNode{}, map[string]*readNode{}
	}
	r = &readNode{round: n.rounds.Load(), at: time.Now(), done: make(chan struct{}), err: errUnread}
	n.read[name] = r
	n.mu.Unlock()
	defer close(r.done)
	if r.node, r.err = n.Read(ctx, name); r.node != nil {
		r.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Status: corev1.NodeStatus{VolumesInUse: r.node.Status.VolumesInUse, Conditions: r.node.Status.Conditions}}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last[name] = r
	return r.node, r.err
}

// Last returns a Node as it was read last if that was after a time, nil else. It does not block. That a volume is in use may be known
// late, because that only delays its detach; that it is not is read anew.
func (n *Nodes) Last(name string, after time.Time) *corev1.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.last[name]; r != nil && r.at.After(after) {
		return r.node
	}
	return nil
}
