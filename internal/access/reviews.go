package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/util/webhook"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// maxAnswers bounds the cached answers: a client that requests many paths costs reviews, but
// no memory.
const maxAnswers = 1000

// reviews authorizes by SubjectAccessReviews and caches the answers. The authorizer of
// k8s.io/apiserver would do the same, but links CEL, which would be a tenth of this program
// and of its memory.
type reviews struct {
	access  authorizationv1client.SubjectAccessReviewsGetter
	answers *cache.LRUExpireCache // bool by hash of the question
}

func newReviews(access authorizationv1client.SubjectAccessReviewsGetter) *reviews {
	return &reviews{access: access, answers: cache.NewLRUExpireCache(maxAnswers)}
}

// allow reports whether a user may get a nonResourceURL. It returns an error if that is not known.
func (r *reviews) allow(ctx context.Context, who user.Info, path string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: extra(who),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}
	question, err := spec.Marshal() // not JSON, which replaces all invalid UTF-8 by the same character
	if err != nil {
		return false, fmt.Errorf("ask for access: %w", err)
	}
	key := sha256.Sum256(question) // paths may be long
	if allowed, ok := r.answers.Get(key); ok {
		return allowed.(bool), nil
	}
	status, err := r.ask(ctx, spec)
	if err != nil {
		return false, fmt.Errorf("ask for access: %w", err)
	}
	allowed := status.Allowed && !status.Denied
	r.answers.Add(key, allowed, ttl(allowed))
	return allowed, nil
}

func (r *reviews) ask(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	var answer *authorizationv1.SubjectAccessReview
	err := webhook.WithExponentialBackoff(ctx, retries(), func() (err error) {
		answer, err = r.access.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err
	}, webhook.DefaultShouldRetry)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return answer.Status, nil
}

func ttl(allowed bool) time.Duration {
	if allowed {
		return allowTTL
	}
	return denyTTL
}

func extra(who user.Info) map[string]authorizationv1.ExtraValue {
	values := map[string]authorizationv1.ExtraValue{}
	for key, v := range who.GetExtra() {
		values[key] = v
	}
	return values
}
