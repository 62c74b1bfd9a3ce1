package rights

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
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

const (
	storage      = "storage.k8s.io"
	coordination = "coordination.k8s.io"

	installation    = "deploy/install.yaml"
	leasesElsewhere = "values drivers and leases.extra of deploy/chart"

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
	elsewhere := slices.SortedFunc(slices.Values(f.Leases), func(a, b Lease) int { return strings.Compare(a.String(), b.String()) })
	for _, l := range slices.Compact(elsewhere) {
		if l.Namespace != f.ReplicaNamespace {
			needed = append(needed, leases(l, leasesElsewhere)...)
		}
	}
	if f.ReplicaNamespace != "" {
		needed = append(needed, leases(Lease{Namespace: f.ReplicaNamespace}, installation)...)
		// Optional: announcements of dead replicas expire, and only stay as objects.
		needed = append(needed, Right{Verb: "delete", Group: coordination, Resource: "leases", Namespace: f.ReplicaNamespace, Manifest: installation, Optional: true})
	}
	return needed
}

// leases returns the rights to hold a lease, or all leases of a namespace. Leases that cannot be
// watched are polled. A Role cannot grant to create a Lease by name: the driver's reason says if one must be created.
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
		group.Go(func() error {
			review, err := kube.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
				},
			}}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("ask whether this process may %s: %w", r, err)
			}
			allowed[i] = review.Status.Allowed
			return nil
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

// Watch asks until it has an answer, and logs the missing rights: one line has the rights without
// which the hub cannot attach or detach, another the optional rights. It blocks until then or until
// ctx ends. The hub runs on without them: rights may be granted while it runs.
func Watch(ctx context.Context, kube authorizationv1client.SelfSubjectAccessReviewsGetter, f Features) {
	logger := klog.FromContext(ctx)
	_ = wait.PollUntilContextCancel(ctx, retryAfter, true, func(ctx context.Context) (bool, error) { // fails only if ctx ends
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		missing, err := Missing(ctx, kube, Needed(f))
		if err != nil {
			// V(2): other parts of the hub log an unreachable API server.
			logger.V(2).Info("Cannot tell whether rights are missing", "err", err)
			return false, nil
		}
		report(logger, missing)
		return true, nil
	})
}

// report logs each missing right, with what grants it.
func report(logger klog.Logger, missing []Right) {
	for _, r := range missing {
		if r.Optional {
			logger.Info("Warning: a right is missing in the Kubernetes API that is of use", "right", r.String(), "see", r.Manifest)
		} else {
			logger.Error(nil, "A right is missing in the Kubernetes API, without which volumes are not attached or not detached", "right", r.String(), "see", r.Manifest)
		}
	}
}
