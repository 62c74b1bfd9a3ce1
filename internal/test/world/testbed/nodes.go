package testbed

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// attachAnnotation makes the attach-detach controller attach for a node; on a
// real node the kubelet sets it.
const attachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// Node is a node without a kubelet.
type Node struct {
	Name string
}

// Build returns the Kubernetes object.
func (n Node) Build() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        n.Name,
		Annotations: map[string]string{attachAnnotation: "true"},
	}}
}

func (n Node) String() string { return "Node " + n.Name }

func (n Node) requests(client kubernetes.Interface) requests {
	return requestsFor(client.CoreV1().Nodes(), n.Build(), n.Name)
}

// CSINode says which drivers are registered on a node.
type CSINode struct {
	Node    string
	Drivers map[string]string // driver name to the driver's ID of the node
	Limits  map[string]int32  // driver name to allocatable.count; a driver without an entry has no limit there
}

// Build returns the Kubernetes object.
func (n CSINode) Build() *storagev1.CSINode {
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Node}}
	for _, driver := range slices.Sorted(maps.Keys(n.Drivers)) {
		d := storagev1.CSINodeDriver{Name: driver, NodeID: n.Drivers[driver]}
		if count, ok := n.Limits[driver]; ok {
			d.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
		}
		node.Spec.Drivers = append(node.Spec.Drivers, d)
	}
	return node
}

func (n CSINode) String() string { return "CSINode " + n.Node }

func (n CSINode) requests(client kubernetes.Interface) requests {
	return requestsFor(client.StorageV1().CSINodes(), n.Build(), n.Node)
}

// CSIDriver says how Kubernetes treats a driver. Without one the attach-detach
// controller attaches its volumes.
type CSIDriver struct {
	Name        string
	NoAttach    bool // attachRequired: false
	Annotations map[string]string
}

// Build returns the Kubernetes object.
func (d CSIDriver) Build() *storagev1.CSIDriver {
	attach := !d.NoAttach
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Annotations: d.Annotations},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &attach},
	}
}

func (d CSIDriver) String() string { return "CSIDriver " + d.Name }

func (d CSIDriver) requests(client kubernetes.Interface) requests {
	return requestsFor(client.StorageV1().CSIDrivers(), d.Build(), d.Name)
}
