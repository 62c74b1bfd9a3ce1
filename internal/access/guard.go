package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
)

const (
	// How long answers are cached: frequent scrapes cost the API server few requests, and a
	// right that is revoked is gone within a minute.
	tokenTTL = time.Minute
	allowTTL = time.Minute
	denyTTL  = 10 * time.Second
	// reviewTimeout bounds one review, checkTimeout all reviews of one request.
	reviewTimeout = 5 * time.Second
	checkTimeout  = 10 * time.Second
)

// retries returns the backoff of a review that failed. It is short: a client waits.
func retries() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}
}

// Guard passes on the requests that the Kubernetes API allows.
type Guard struct {
	authenticator authenticator.Request
	authorizer    *reviews
}

// New returns a Guard. Its clients need the rights to create tokenreviews and
// subjectaccessreviews. New sends no request.
func New(tokens authenticationv1client.AuthenticationV1Interface, access authorizationv1client.SubjectAccessReviewsGetter) (*Guard, error) {
	tokenReviews, err := webhook.NewFromInterface(tokens, nil, retries(), reviewTimeout, webhook.AuthenticatorMetrics{
		RecordRequestTotal:   func(context.Context, string) {},
		RecordRequestLatency: func(context.Context, string, float64) {},
	})
	if err != nil {
		return nil, fmt.Errorf("prepare token reviews: %w", err)
	}
	authenticator := group.NewAuthenticatedGroupAdder(bearertoken.New(cache.New(tokenReviews, false, tokenTTL, tokenTTL)))
	return &Guard{authenticator: authenticator, authorizer: newReviews(access)}, nil
}

// Wrap puts the Guard in front of a handler. The answer is 401 without a valid token, 403
// without the right, and 503 if the API server does not answer.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, why := g.check(r); status != 0 {
			if status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			refuse(w, r, status, why)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse answers in JSON below /api/, as the API does, and else in plain text.
func refuse(w http.ResponseWriter, r *http.Request, status int, why string) {
	if !strings.HasPrefix(r.URL.Path, "/api/") {
		http.Error(w, why, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why}) // the client has gone
}

// check returns 0 if the request may pass, else the status and text of the answer.
func (g *Guard) check(r *http.Request) (status int, why string) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	who, ok, err := g.authenticator.AuthenticateRequest(r.WithContext(ctx))
	switch {
	case err != nil && unanswered(err):
		klog.FromContext(ctx).Info("Cannot authenticate the request", "err", err)
		return http.StatusServiceUnavailable, "authentication is unavailable now"
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Refused a token", "err", err)
		return http.StatusUnauthorized, "give a valid token (Authorization: Bearer ...): the cluster does not accept this one"
	case !ok:
		return http.StatusUnauthorized, "give a token of the cluster (Authorization: Bearer ...)"
	}
	allowed, err := g.authorizer.allow(ctx, who.User, resourceURL(r.URL.Path))
	switch {
	case err != nil:
		klog.FromContext(ctx).Info("Cannot authorize the request", "user", who.User.GetName(), "err", err)
		return http.StatusServiceUnavailable, "authorization is unavailable now"
	case !allowed:
		klog.FromContext(ctx).V(2).Info("Not allowed", "user", who.User.GetName(), "path", r.URL.Path)
		return http.StatusForbidden, fmt.Sprintf("you need the right to get the nonResourceURL %s", resourceURL(r.URL.Path))
	}
	return 0, ""
}

// unanswered reports whether err means that a token was not reviewed: the API server was not
// reached, or refused the review. The request is refused, but the token may be valid.
func unanswered(err error) bool {
	if several, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		return slices.ContainsFunc(several.Errors(), unanswered)
	}
	_, network := errors.AsType[net.Error](err)
	var refused apierrors.APIStatus
	return network || errors.As(err, &refused) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// resourceURL returns the nonResourceURL for a path. Every user of a cluster may get /api/* of
// kube-apiserver (ClusterRole system:discovery), which must not grant /api/* of the hub.
func resourceURL(path string) string {
	if path == "/metrics" {
		return path
	}
	return "/attach-hub" + path
}
