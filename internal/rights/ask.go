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
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
)

const (
	// maxReviews bounds the reviews at once.
	maxReviews = 8
	// timeout bounds one round of reviews; retryAfter is the pause before the next round.
	timeout    = 30 * time.Second
	retryAfter = 10 * time.Second
)

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

// Watch asks until it has an answer, and logs the missing rights: one line has the rights without
// which the hub cannot attach or detach, another the optional rights, a third the leases of
// AbsentLeases. It blocks until then or until ctx ends. The hub runs on without them: rights may
// be granted, and leases created, while it runs.
func Watch(ctx context.Context, kube Kube, f Features) {
	logger := klog.FromContext(ctx)
	for {
		limited, cancel := context.WithTimeout(ctx, timeout)
		missing, err := Missing(limited, kube.AuthorizationV1(), Needed(f))
		var absent []Lease
		if err == nil {
			absent, err = AbsentLeases(limited, kube, f)
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			report(logger, missing, absent)
			return
		}
		// V(2): other parts of the hub log an unreachable API server.
		logger.V(2).Info("Cannot tell whether rights are missing", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
}

// report logs the missing rights and leases, if there are any.
func report(logger klog.Logger, missing []Right, absent []Lease) {
	var required, optional []Right
	for _, r := range missing {
		if r.Optional {
			optional = append(optional, r)
		} else {
			required = append(required, r)
		}
	}
	if len(required) > 0 {
		logger.Error(nil, "Rights are missing in the Kubernetes API, without which volumes are not attached or not detached", describe(required)...)
	}
	if len(optional) > 0 {
		logger.Info("Warning: rights are missing in the Kubernetes API that are of use", describe(optional)...)
	}
	if len(absent) > 0 {
		var names []string
		for _, l := range absent {
			names = append(names, l.String())
		}
		logger.Error(nil, "Leases of drivers do not exist, and the hub may not create them: create the leases, or remove lease.namespace from the entries of the drivers",
			"leases", strings.Join(names, ", "), "see", leasesElsewhereManifest)
	}
}

// describe returns the keys and values of a log line.
func describe(missing []Right) []any {
	var names, purposes, manifests []string
	for _, r := range missing {
		names = append(names, r.String())
		purposes = appendNew(purposes, r.Purpose)
		manifests = appendNew(manifests, r.Manifest)
	}
	return []any{"missing", strings.Join(names, ", "), "neededTo", strings.Join(purposes, "; "), "see", strings.Join(manifests, ", ")}
}

func appendNew(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}
