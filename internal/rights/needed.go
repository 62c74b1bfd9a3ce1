package rights

import (
	"cmp"
	"slices"
)

// Right is one verb on one resource.
type Right struct {
	Verb        string
	Group       string // "" for the core group
	Resource    string
	Subresource string
	Namespace   string // "" for all namespaces, or for a cluster-wide resource
	Name        string // of the only object that is needed; "" for all
	Purpose     string // the function that needs it
	Manifest    string // what grants it in deploy/: a value of the chart, or a file that the chart renders
	Optional    bool   // the hub attaches and detaches without it
}

// String returns the right in the terms of a Role, "patch volumeattachments/status.storage.k8s.io",
// with the name of an object as kubectl takes it: "get leases.coordination.k8s.io/NAME in namespace n".
func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Name != "" {
		s += "/" + r.Name
	}
	if r.Namespace != "" {
		s += " in namespace " + r.Namespace
	}
	return s
}

// Lease names the Lease of a driver. An empty Name is for a driver whose name is not known yet:
// then the rights on all leases of the namespace are needed.
type Lease struct{ Namespace, Name string }

func (l Lease) String() string { return l.Namespace + "/" + l.Name }

// Features are the functions of a hub besides attaching and detaching.
type Features struct {
	Leases           []Lease // of drivers; none without leader election
	ReplicaNamespace string  // of the lease by which this replica announces itself; "" if it does not
	Discovery        bool    // drivers are taken from CSIDriver objects
}

// leasesElsewhere returns the leases of drivers outside of the replicas' namespace, sorted.
func (f Features) leasesElsewhere() []Lease {
	leases := slices.DeleteFunc(slices.Clone(f.Leases), func(l Lease) bool { return l.Namespace == f.ReplicaNamespace })
	slices.SortFunc(leases, func(a, b Lease) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(leases)
}

const (
	core         = ""
	storage      = "storage.k8s.io"
	coordination = "coordination.k8s.io"

	installation            = "deploy/install.yaml"
	leasesElsewhereManifest = "values drivers and leases.extra of deploy/chart"

	// eventNamespace is where Kubernetes keeps Events about cluster-wide objects.
	eventNamespace = "default"
)

// Needed returns the rights that a hub needs, sorted by purpose.
func Needed(f Features) []Right {
	needed := slices.Concat(
		each(Right{Resource: "persistentvolumes", Purpose: "attach and detach", Manifest: installation}, "get", "list", "watch", "patch"),
		each(Right{Group: storage, Resource: "volumeattachments", Purpose: "attach and detach", Manifest: installation}, "get", "list", "watch", "patch"),
		each(Right{Group: storage, Resource: "volumeattachments", Subresource: "status", Purpose: "attach and detach", Manifest: installation}, "patch"),
		each(Right{Group: storage, Resource: "csinodes", Purpose: "attach", Manifest: installation}, "get", "list", "watch"),
		each(Right{Group: storage, Resource: "csidrivers", Purpose: "see attachRequired, discover drivers", Manifest: installation, Optional: !f.Discovery}, "list", "watch"),
		each(Right{Resource: "nodes", Purpose: "detach only what is not in use", Manifest: installation, Optional: true}, "get"),
		each(Right{Resource: "events", Namespace: eventNamespace, Purpose: "record Events for failures", Manifest: installation, Optional: true}, "create", "patch"),
	)
	for _, l := range f.leasesElsewhere() {
		needed = append(needed, leases(l, "hold the leases of drivers", leasesElsewhereManifest)...)
	}
	if f.ReplicaNamespace != "" {
		own := leases(Lease{Namespace: f.ReplicaNamespace}, "hold leases, share drivers among replicas", installation)
		// Optional: announcements of dead replicas expire, and only stay as objects.
		own = append(own, Right{Verb: "delete", Group: coordination, Resource: "leases", Namespace: f.ReplicaNamespace,
			Purpose: own[0].Purpose, Manifest: own[0].Manifest, Optional: true})
		needed = append(needed, own...)
	}
	return needed
}

// leases returns the rights to hold a lease, or all leases of a namespace. Leases that cannot be
// watched are polled. A Role cannot grant to create a Lease by name: see AbsentLeases.
func leases(l Lease, purpose, manifest string) []Right {
	r := Right{Group: coordination, Resource: "leases", Namespace: l.Namespace, Name: l.Name, Purpose: purpose, Manifest: manifest}
	required := each(r, "get", "update")
	if l.Name == "" {
		required = each(r, "get", "create", "update")
	}
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
