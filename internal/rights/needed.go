package rights

import "slices"

// Right is one verb on one resource.
type Right struct {
	Verb        string
	Group       string // "" for the core group
	Resource    string
	Subresource string
	Namespace   string // "" for all namespaces, or for a cluster-wide resource
	Purpose     string // the function that needs it
	Manifest    string // the file below deploy/ that grants it
	Optional    bool   // the hub attaches and detaches without it
}

// String returns the right in the terms of a Role: "patch volumeattachments/status.storage.k8s.io".
func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Namespace != "" {
		s += " in namespace " + r.Namespace
	}
	return s
}

// Features are the functions of a hub besides attaching and detaching.
type Features struct {
	LeaseNamespaces  []string // of the leases of drivers; none without leader election
	ReplicaNamespace string   // of the lease by which this replica announces itself; "" if it does not
	Discovery        bool     // drivers are taken from CSIDriver objects
	Reviews          bool     // requests to the hub are authenticated and authorized by the cluster
}

const (
	core         = ""
	storage      = "storage.k8s.io"
	coordination = "coordination.k8s.io"

	clusterRole = "deploy/base/clusterrole.yaml"

	// eventNamespace is where Kubernetes keeps Events about cluster-wide objects.
	eventNamespace = "default"
)

// Needed returns the rights that a hub needs, sorted by purpose.
func Needed(f Features) []Right {
	needed := slices.Concat(
		each(Right{Resource: "persistentvolumes", Purpose: "attach and detach", Manifest: clusterRole}, "get", "list", "watch", "patch"),
		each(Right{Group: storage, Resource: "volumeattachments", Purpose: "attach and detach", Manifest: clusterRole}, "get", "list", "watch", "patch"),
		each(Right{Group: storage, Resource: "volumeattachments", Subresource: "status", Purpose: "attach and detach", Manifest: clusterRole}, "patch"),
		each(Right{Group: storage, Resource: "csinodes", Purpose: "attach", Manifest: clusterRole}, "get", "list", "watch"),
		each(Right{Group: storage, Resource: "csidrivers", Purpose: "see attachRequired, discover drivers", Manifest: clusterRole, Optional: !f.Discovery}, "list", "watch"),
		each(Right{Resource: "nodes", Purpose: "detach when attachRequired has become false", Manifest: clusterRole, Optional: true}, "get"),
		each(Right{Resource: "events", Namespace: eventNamespace, Purpose: "record Events for failures", Manifest: "deploy/base/events.yaml", Optional: true}, "create", "patch"),
	)
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(f.LeaseNamespaces))) {
		if namespace != f.ReplicaNamespace {
			needed = append(needed, leases(namespace, "hold the leases of drivers", "deploy/components/leases")...)
		}
	}
	if f.ReplicaNamespace != "" {
		own := leases(f.ReplicaNamespace, "hold leases, share drivers among replicas", "deploy/base/leases.yaml")
		// Optional: announcements of dead replicas expire, and only stay as objects.
		own = append(own, Right{Verb: "delete", Group: coordination, Resource: "leases", Namespace: f.ReplicaNamespace,
			Purpose: own[0].Purpose, Manifest: own[0].Manifest, Optional: true})
		needed = append(needed, own...)
	}
	if f.Reviews {
		needed = append(needed,
			Right{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews", Purpose: "find out who looks at the hub", Manifest: clusterRole, Optional: true},
			Right{Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Purpose: "find out who may look at the hub", Manifest: clusterRole, Optional: true})
	}
	return needed
}

// leases returns the rights to hold leases in a namespace. Leases that cannot be watched are
// polled.
func leases(namespace, purpose, manifest string) []Right {
	r := Right{Group: coordination, Resource: "leases", Namespace: namespace, Purpose: purpose, Manifest: manifest}
	required := each(r, "get", "create", "update")
	r.Optional = true
	return append(required, each(r, "list", "watch")...)
}

func each(r Right, verbs ...string) []Right {
	rights := make([]Right, len(verbs))
	for i, verb := range verbs {
		rights[i], rights[i].Verb = r, verb
	}
	return rights
}
