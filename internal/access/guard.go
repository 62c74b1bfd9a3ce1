package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/util/webhook"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

const (
	// reviewTimeout bounds one review, checkTimeout all reviews of one request.
	reviewTimeout = 5 * time.Second
	checkTimeout  = 10 * time.Second
	// retryAfter is when a client whose request could not be checked may try again, in seconds.
	retryAfter = "5"
)

// withRetries calls f, and again after errors that may be over soon. Its backoff is short: a client waits.
func withRetries(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	backoff := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}
	return webhook.WithExponentialBackoff(ctx, backoff, func() error { return f(ctx) }, webhook.DefaultShouldRetry)
}

// Guard passes on the requests that the Kubernetes API allows.
type Guard struct {
	tokens  *tokens
	reviews *reviews
	log     *loglimit.Limiter
}

// New returns a Guard. Its clients need the rights to create tokenreviews and
// subjectaccessreviews. New sends no request. All servers of a process should have the same Guard, which
// bounds the reviews.
func New(authentication authenticationv1client.TokenReviewsGetter, authorization authorizationv1client.SubjectAccessReviewsGetter) *Guard {
	g := newGate()
	return &Guard{tokens: newTokens(authentication, g), reviews: newReviews(authorization, g), log: loglimit.New(3, time.Minute)}
}

// Wrap puts the Guard in front of a handler. The answer is 401 without a valid token, 403
// without the right, 429 after too many requests with tokens or paths that are new, and 503 if the API server
// does not answer.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, why := g.check(r); status != 0 {
			switch status {
			case http.StatusUnauthorized:
				w.Header().Set("WWW-Authenticate", "Bearer")
			case http.StatusTooManyRequests, http.StatusServiceUnavailable:
				w.Header().Set("Retry-After", retryAfter)
			}
			w.Header().Set("Connection", "close") // nobody keeps a connection without a right
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
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	who, ok, err := g.tokens.from(address).AuthenticateRequest(r.WithContext(ctx))
	switch {
	case errors.Is(err, errNotReviewed):
		return g.unknown(r, "authentication", err)
	case err != nil:
		return http.StatusUnauthorized, "give a valid token (Authorization: Bearer ...): the cluster does not accept this one"
	case !ok:
		return http.StatusUnauthorized, "give a token of the cluster (Authorization: Bearer ...)"
	}
	allowed, err := g.reviews.allow(ctx, who.User, resourceURL(r.URL.Path))
	switch {
	case err != nil:
		return g.unknown(r, "authorization", err)
	case !allowed:
		klog.FromContext(ctx).V(2).Info("Not allowed", "user", who.User.GetName(), "path", r.URL.Path)
		return http.StatusForbidden, fmt.Sprintf("you need the right to get the nonResourceURL %s", resourceURL(r.URL.Path))
	}
	return 0, ""
}

// unknown returns the answer to a request that could not be checked.
func (g *Guard) unknown(r *http.Request, what string, err error) (status int, why string) {
	if errors.Is(err, errTooMany) {
		g.log.Info(klog.FromContext(r.Context()), "Too many requests with tokens or paths that are new", "client", r.RemoteAddr)
		return http.StatusTooManyRequests, errTooMany.Error() + ": try again in " + retryAfter + " seconds"
	}
	g.log.Info(klog.FromContext(r.Context()), "Cannot check a request", "client", r.RemoteAddr, "what", what, "err", err)
	return http.StatusServiceUnavailable, what + " is unavailable now"
}

// resourceURL returns the nonResourceURL for a path. Every user of a cluster may get /api/* of
// kube-apiserver (ClusterRole system:discovery), which must not grant /api/* of the hub.
func resourceURL(path string) string {
	if path == "/metrics" {
		return path
	}
	return "/attach-hub" + path
}
