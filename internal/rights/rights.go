package rights

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
)

const (
	// maxReviews bounds the reviews at once.
	maxReviews = 8
	// timeout bounds one round of reviews; retryAfter is the time between the beginnings of two rounds.
	timeout    = 30 * time.Second
	retryAfter = 10 * time.Second
)

// Right is one verb on one resource.
type Right struct {
	Verb        string
	Group       string // "" for the core group
	Resource    string
	Subresource string
	Namespace   string // "" for all namespaces, or for a cluster-wide resource
	Name        string // of the only object that is needed; "" for all
	Manifest    string // what grants it in deploy/: a value of the chart, or a file that the chart renders
	Optional    bool   // the hub attaches and detaches without it
}

// String returns the right in the terms of a Role, "patch volumeattachments/status.storage.k8s.io",
// with the name of an object as kubectl takes it: "get leases.coordination.k8s.io/NAME in namespace n".
func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	for _, part := range []struct{ before, text string }{{"/", r.Subresource}, {".", r.Group}, {"/", r.Name}, {" in namespace ", r.Namespace}} {
		if part.text != "" {
			s += part.before + part.text
		}
	}
	return s
}

// Lease names the Lease of a driver. An empty Name is for a driver whose name is not known yet:
// then the rights on all leases of the namespace are needed.
type Lease = types.NamespacedName

// Features are the functions of a hub besides attaching and detaching.
type Features struct {
	Leases           []Lease // of drivers; none without leader election
	ReplicaNamespace string  // of the lease by which this replica announces itself; "" if it does not
	Discovery        bool    // drivers are taken from CSIDriver objects
}

// leasesElsewhere returns the leases of drivers outside of the replicas' namespace, sorted.
func (f Features) leasesElsewhere() []Lease {
	leases := slices.DeleteFunc(slices.Clone(f.Leases), func(l Lease) bool { return l.Namespace == f.ReplicaNamespace })
	slices.SortFunc(leases, func(a, b Lease) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(leases)
}

const (
	storage      = "storage.k8s.io"
	coordination = "coordination.k8s.io"

	installation            = "deploy/install.yaml"
	leasesElsewhereManifest = "values drivers and leases.extra of deploy/chart"

	// eventNamespace is where Kubernetes keeps Events about cluster-wide objects.
	eventNamespace = "default"
)

// Needed returns the rights that a hub needs.
func Needed(f Features) []Right {
	needed := slices.Concat(
		each(Right{Resource: "persistentvolumes", Manifest: installation}, "get", "list", "watch", "patch"),
		each(Right{Group: storage, Resource: "volumeattachments", Manifest: installation}, "get", "list", "watch", "patch"),
		each(Right{Group: storage, Resource: "volumeattachments", Subresource: "status", Manifest: installation}, "patch"),
		each(Right{Group: storage, Resource: "csinodes", Manifest: installation}, "get", "list", "watch"),
		each(Right{Group: storage, Resource: "csidrivers", Manifest: installation, Optional: !f.Discovery}, "list", "watch"),
		each(Right{Resource: "nodes", Manifest: installation, Optional: true}, "get"),
		each(Right{Resource: "events", Namespace: eventNamespace, Manifest: installation, Optional: true}, "create", "patch"),
	)
	for _, l := range f.leasesElsewhere() {
		needed = append(needed, leases(l, leasesElsewhereManifest)...)
	}
	if f.ReplicaNamespace != "" {
		needed = append(needed, leases(Lease{Namespace: f.ReplicaNamespace}, installation)...)
		// Optional: announcements of dead replicas expire, and only stay as objects.
		needed = append(needed, Right{Verb: "delete", Group: coordination, Resource: "leases", Namespace: f.ReplicaNamespace, Manifest: installation, Optional: true})
	}
	return needed
}

// leases returns the rights to hold a lease, or all leases of a namespace. Leases that cannot be
// watched are polled. A Role cannot grant to create a Lease by name: see AbsentLeases.
func leases(l Lease, manifest string) []Right {
	r := Right{Group: coordination, Resource: "leases", Namespace: l.Namespace, Name: l.Name, Manifest: manifest}
	required := each(r, "get", "update")
	if l.Name == "" {
		required = each(r, "get", "create", "update")
	}
	r.Optional = true
	return append(required, each(r, "list", "watch")...)
}

func each(r Right, verbs ...string) []Right {
	var rights []Right
	for _, r.Verb = range verbs {
		rights = append(rights, r)
	}
	return rights
}

// Missing asks the API server and returns the rights that this process does not have, in the
// given order. It blocks until all reviews are answered or one has failed.
func Missing(ctx context.Context, kube authorizationv1client.SelfSubjectAccessReviewsGetter, needed []Right) ([]Right, error) {
	allowed := make([]bool, len(needed))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReviews)
	for i, r := range needed {
		group.Go(func() (err error) {
			allowed[i], err = ask(ctx, kube, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []Right
	for i, r := range needed {
		if !allowed[i] {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

func ask(ctx context.Context, kube authorizationv1client.SelfSubjectAccessReviewsGetter, r Right) (allowed bool, err error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
		},
	}}
	review, err = kube.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether this process may %s: %w", r, err)
	}
	return review.Status.Allowed, nil
}

// Kube is the part of the Kubernetes API that is asked; every kubernetes.Interface is one.
type Kube interface {
	AuthorizationV1() authorizationv1client.AuthorizationV1Interface
	CoordinationV1() coordinationv1client.CoordinationV1Interface
}

// AbsentLeases returns the leases of drivers that do not exist and that this process may not
// create, sorted. The right to create leases is needed for no other lease: mostly the driver's
// csi-attacher has made it. It blocks until all requests are answered or one has failed.
func AbsentLeases(ctx context.Context, kube Kube, f Features) ([]Lease, error) {
	var absent []Lease
	for _, l := range f.leasesElsewhere() {
		if l.Name == "" {
			continue // Needed has the right to create leases
		}
		_, err := kube.CoordinationV1().Leases(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{})
		switch {
		case err == nil, apierrors.IsForbidden(err): // Missing reports a lease that may not be read
			continue
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("ask whether lease %s exists: %w", l, err)
		}
		create := Right{Verb: "create", Group: coordination, Resource: "leases", Namespace: l.Namespace}
		allowed, err := ask(ctx, kube.AuthorizationV1(), create)
		if err != nil {
			return nil, err
		}
		if !allowed {
			absent = append(absent, l)
		}
	}
	return absent, nil
}

// Watch asks until it has an answer, and logs the missing rights: one line has the rights without
// which the hub cannot attach or detach, another the optional rights, a third the leases of
// AbsentLeases. It blocks until then or until ctx ends. The hub runs on without them: rights may
// be granted, and leases created, while it runs.
func Watch(ctx context.Context, kube Kube, f Features) {
	logger := klog.FromContext(ctx)
	_ = wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) { // fails only if ctx ends
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		missing, err := Missing(ctx, kube.AuthorizationV1(), Needed(f))
		var absent []Lease
		if err == nil {
			absent, err = AbsentLeases(ctx, kube, f)
		}
		if err != nil {
			// V(2): other parts of the hub log an unreachable API server.
			logger.V(2).Info("Cannot tell whether rights are missing", "err", err)
			return false, nil
		}
		report(logger, missing, absent)
		return true, nil
	})
}

// report logs the missing rights and leases, if there are any.
func report(logger klog.Logger, missing []Right, absent []Lease) {
	names, manifests := map[bool][]string{}, map[bool][]string{} // by Optional
	for _, r := range missing {
		names[r.Optional] = append(names[r.Optional], r.String())
		if !slices.Contains(manifests[r.Optional], r.Manifest) {
			manifests[r.Optional] = append(manifests[r.Optional], r.Manifest)
		}
	}
	values := func(optional bool) []any {
		return []any{"missing", strings.Join(names[optional], ", "), "see", strings.Join(manifests[optional], ", ")}
	}
	if names[false] != nil {
		logger.Error(nil, "Rights are missing in the Kubernetes API, without which volumes are not attached or not detached", values(false)...)
	}
	if names[true] != nil {
		logger.Info("Warning: rights are missing in the Kubernetes API that are of use", values(true)...)
	}
	if absent != nil {
		var leases []string
		for _, l := range absent {
			leases = append(leases, l.String())
		}
		logger.Error(nil, "Leases of drivers do not exist, and the hub may not create them: create the leases, or remove lease.namespace from the entries of the drivers",
			"leases", strings.Join(leases, ", "), "see", leasesElsewhereManifest)
	}
}
