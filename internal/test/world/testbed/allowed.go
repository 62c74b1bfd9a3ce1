package testbed

import (
	"context"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// allowedTimeout is when WaitAllowed gives up.
const allowedTimeout = 30 * time.Second

// WaitAllowed waits until the API server allows what a role was made for: it takes roles
// and bindings in from a watch, a moment after they are made.
func WaitAllowed(tb testing.TB, client kubernetes.Interface, asked authorizationv1.SubjectAccessReviewSpec) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), allowedTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: asked}, metav1.CreateOptions{})
		if err != nil {
			tb.Fatalf("wait until %s is allowed what was granted: %v", asked.User, err)
		}
		if review.Status.Allowed {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tb.Fatalf("%s is still not allowed what was granted: %s", asked.User, review.Status.Reason)
		}
	}
}
