package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// errRequiredAgain means that attachRequired became true during a detach whose only reason was that it is false.
var errRequiredAgain = fmt.Errorf("%w: attachRequired is true again", attach.ErrStale)

// checkUnused returns an error if a volume is in use on its node, or if that cannot be found out. It is called
// before the status is written and before each call of a detach whose only reason is that attachRequired is false: a CSIDriver
// object that was created again with the wrong attachRequired must not take volumes from running Pods.
func (l *leader) checkUnused(ctx context.Context, va *storagev1.VolumeAttachment, target attach.Target) error {
	node, err := l.cluster.ReadNode(ctx, va.Spec.NodeName)
	switch {
	case !l.decider().NoAttach:
		return errRequiredAgain
	case err != nil:
		return fmt.Errorf("attachRequired is false, but the API server did not say whether node %q uses the volume: %w", va.Spec.NodeName, err)
	case node != nil && l.decider().InUse(node, target.VolumeHandle):
		return fmt.Errorf("attachRequired is false, but the volume is in use on node %q: it stays attached until it is not", node.Name)
	}
	return nil
}

// maybeInUse returns why a volume may be in use on one of some nodes, for people; "" if it surely is not. The kubelet uses
// a volume for which there is no VolumeAttachment if that was removed by force, or lost with a part of etcd. A Node that
// is gone proves nothing: its Pods may run on. It blocks until the API server has answered.
func (l *leader) maybeInUse(ctx context.Context, now *nodesNow, nodes []string, handle string) string {
	for _, name := range nodes {
		node, err := now.get(ctx, name)
		switch {
		case err != nil:
			return fmt.Sprintf("whether it is in use on node %s is not known: %v", name, err)
		case node == nil:
			return fmt.Sprintf("whether it is in use on node %s is not known: the Node object is gone", name)
		case l.decider().InUse(node, handle):
			return fmt.Sprintf("it is in use on node %s", name)
		}
	}
	return ""
}

// errInUse means that a volume is not detached because the kubelet uses it.
type errInUse struct{ node string }

func (e errInUse) Error() string {
	return fmt.Sprintf("no VolumeAttachment has the volume there, but it is in use on node %q: it stays attached until it is not", e.node)
}

// nodesNow has the Nodes of one round as the API server has them. It reads each at most once: thousands of volumes of one node
// may be unowned.
type nodesNow struct {
	cluster *cache.Cluster
	ids     map[string][]string // names of nodes, by the node ID that the driver has registered

	mu   sync.Mutex
	read map[string]func() (*corev1.Node, error) // by name; guarded by mu
}

func (l *leader) nodesNow() *nodesNow {
	return &nodesNow{cluster: l.cluster, ids: l.cluster.NodesOfDriver(l.name), read: map[string]func() (*corev1.Node, error){}}
}

// get returns a Node, nil if there is none.
func (n *nodesNow) get(ctx context.Context, name string) (*corev1.Node, error) {
	n.mu.Lock()
	read := n.read[name]
	if read == nil {
		read = sync.OnceValues(func() (*corev1.Node, error) { return n.cluster.ReadNode(ctx, name) })
		n.read[name] = read
	}
	n.mu.Unlock()
	return read()
}

// checkUnowned returns errInUse if an unowned publication is in use, another error if that cannot be found out. Its
// VolumeAttachment may have been removed by force, or lost with a part of etcd, under a running Pod. What counts is the node that
// has the node ID now: the former owner's node may be another machine by now. A node that is gone or not ready does not count:
// nobody keeps its status.volumesInUse up to date. It blocks until the API server has answered.
func (l *leader) checkUnowned(ctx context.Context, nodes *nodesNow, u volume.Unowned) error {
	names := nodes.ids[u.Target.NodeID]
	former := u.FormerOwner.Node
	if _, registered := attach.NodeID(l.cluster.CSINode(former), l.name); len(names) == 0 && !registered && former != "" {
		names = []string{former} // its node plugin restarts
	}
	for _, name := range names {
		switch node, err := nodes.get(ctx, name); {
		case err != nil:
			return fmt.Errorf("the API server did not say whether node %q uses the volume: %w", name, err)
		case node != nil && isReady(node) && l.decider().InUse(node, u.Target.VolumeHandle):
			l.using.note(node, time.Now())
			return errInUse{name}
		}
	}
	return nil
}

// usingNodes has the Nodes that used an unowned volume when they were read last. A thousand volumes of one node may be unowned: one
// read tells of all. That a volume is in use may be known late, because that only delays its detach; that it is not is read anew.
type usingNodes struct {
	mu   sync.Mutex
	last map[string]usingNode // by name; guarded by mu
}

type usingNode struct {
	node *corev1.Node
	read time.Time
}

func (u *usingNodes) note(node *corev1.Node, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[string]usingNode{}
	}
	u.last[node.Name] = usingNode{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}, Status: corev1.NodeStatus{VolumesInUse: node.Status.VolumesInUse}}, now}
}

// get returns a Node that was read after a time, nil if there is none.
func (u *usingNodes) get(name string, after time.Time) *corev1.Node {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last := u.last[name]; last.read.After(after) {
		return last.node
	}
	return nil
}

// wasInUse returns errInUse if the node of the former owner was read lately and since the last try, and used the volume.
func (l *leader) wasInUse(u volume.Unowned) error {
	since := time.Now().Add(-l.settings().Retry.Max)
	if u.Failed.After(since) {
		since = u.Failed
	}
	node := l.using.get(u.FormerOwner.Node, since)
	if id, registered := attach.NodeID(l.cluster.CSINode(u.FormerOwner.Node), l.name); node == nil || !registered || id != u.Target.NodeID || !l.decider().InUse(node, u.Target.VolumeHandle) {
		return nil
	}
	return errInUse{node.Name}
}

// isReady reports whether a node is ready, or has not said yet.
func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return true
}
