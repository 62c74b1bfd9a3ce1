package access

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// reviews authorizes by SubjectAccessReviews. The authorizer of k8s.io/apiserver would do the same, but links
// CEL, which would be a tenth of this program and of its memory.
type reviews struct {
	access  authorizationv1client.SubjectAccessReviewsGetter
	answers *answers[struct{}]
}

func newReviews(access authorizationv1client.SubjectAccessReviewsGetter, g *gate) *reviews {
	return &reviews{access: access, answers: newAnswers[struct{}](g, newQuota(10, 200))}
}

// allow reports whether a user may get a nonResourceURL. It returns an error if that is not known.
func (r *reviews) allow(ctx context.Context, who user.Info, path string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: extra(who),
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}
	question, err := spec.Marshal() // not JSON, which replaces all invalid UTF-8 by the same character
	if err != nil {
		return false, fmt.Errorf("review access: %w", err)
	}
	_, allowed, err := r.answers.get(ctx, question, who.GetName(), func(ctx context.Context) (none struct{}, allowed bool, err error) {
		var review *authorizationv1.SubjectAccessReview
		err = withRetries(ctx, func(ctx context.Context) (err error) {
			review, err = r.access.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return none, false, fmt.Errorf("review access: %w", err)
		}
		return none, review.Status.Allowed && !review.Status.Denied, nil
	})
	return allowed, err
}

func extra(who user.Info) map[string]authorizationv1.ExtraValue {
	values := map[string]authorizationv1.ExtraValue{}
	for key, v := range who.GetExtra() {
		values[key] = v
	}
	return values
}
