package access

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/klog/v2"
)

// maxToken is the length of the longest token that is reviewed, in bytes.
const maxToken = 16 << 10

// errNotReviewed is returned for a request whose token may be valid.
var errNotReviewed = errors.New("review the token")

// tokens authenticates by TokenReviews.
type tokens struct {
	client  authenticationv1client.TokenReviewsGetter
	answers *answers[user.Info]
}

func newTokens(client authenticationv1client.TokenReviewsGetter, g *gate) *tokens {
	return &tokens{client: client, answers: newAnswers[user.Info](g, newQuota(2, 20))}
}

// from returns an authenticator of requests from an address. Its error is errNotReviewed, or that the token is refused.
func (t *tokens) from(address string) authenticator.Request {
	return group.NewAuthenticatedGroupAdder(bearertoken.New(authenticator.TokenFunc(func(ctx context.Context, token string) (*authenticator.Response, bool, error) {
		if len(token) > maxToken {
			return nil, false, nil
		}
		who, ok, err := t.answers.get(ctx, []byte(token), address, func(ctx context.Context) (user.Info, bool, error) {
			return t.review(ctx, token, address)
		})
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", errNotReviewed, err)
		}
		return &authenticator.Response{User: who}, ok, nil
	})))
}

func (t *tokens) review(ctx context.Context, token, address string) (user.Info, bool, error) {
	spec := authenticationv1.TokenReviewSpec{Token: token}
	var review *authenticationv1.TokenReview
	err := withRetries(ctx, func(ctx context.Context) (err error) {
		review, err = t.client.TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if status := review.Status; !status.Authenticated {
		why := strings.ReplaceAll(status.Error, token, "[token]")
		klog.FromContext(ctx).V(2).Info("Token refused", "client", address, "err", why)
		return nil, false, nil
	}
	found := review.Status.User
	who := &user.DefaultInfo{Name: found.Username, UID: found.UID, Groups: found.Groups, Extra: map[string][]string{}}
	for key, v := range found.Extra {
		who.Extra[key] = v
	}
	return who, true, nil
}
