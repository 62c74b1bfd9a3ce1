package access

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// judge answers reviews of access, and counts them.
type judge struct {
	may   func(authorizationv1.SubjectAccessReviewSpec) (bool, error)
	asked int
}

func (j *judge) SubjectAccessReviews() authorizationv1client.SubjectAccessReviewInterface { return j }

func (j *judge) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	j.asked++
	allowed, err := j.may(review.Spec)
	review.Status.Allowed = allowed
	return review, err
}

func TestAnAnswerIsRememberedForItsQuestionOnly(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice", Groups: []string{"staff"}, Extra: map[string][]string{"scope": {"all"}}}
	questions := []struct {
		who  user.Info
		path string
		want bool
	}{
		{alice, "/metrics", true},
		{alice, "/attach-hub/", false},
		// As JSON these two are alike.
		{alice, "/attach-hub/\xfe", false},
		{alice, "/attach-hub/\xff", true},
		{&user.DefaultInfo{Name: "bob", Groups: alice.Groups, Extra: alice.Extra}, "/metrics", false},
		{&user.DefaultInfo{Name: "alice", UID: "other", Groups: alice.Groups, Extra: alice.Extra}, "/metrics", false},
		{&user.DefaultInfo{Name: "alice", Extra: alice.Extra}, "/metrics", false},
		{&user.DefaultInfo{Name: "alice", Groups: alice.Groups}, "/metrics", false},
	}
	j := &judge{may: func(spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
		path := spec.NonResourceAttributes.Path
		return spec.User == "alice" && spec.UID == "" && len(spec.Groups) == 1 && len(spec.Extra) == 1 &&
			(path == "/metrics" || path == "/attach-hub/\xff"), nil
	}}
	r := newReviews(j, newGate())
	for range 3 {
		for _, q := range questions {
			if got, err := r.allow(t.Context(), q.who, q.path); err != nil || got != q.want {
				t.Errorf("%+v to %q: %v %v, want %v", q.who, q.path, got, err, q.want)
			}
		}
	}
	if j.asked != len(questions) {
		t.Errorf("asked %d times, want once for each of %d questions", j.asked, len(questions))
	}
}

func TestARightThatIsGivenOrTakenCountsAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := false
		var away error
		r := newReviews(&judge{may: func(authorizationv1.SubjectAccessReviewSpec) (bool, error) { return allowed, away }}, newGate())
		expect := func(when string, want, known bool) {
			t.Helper()
			got, err := r.allow(t.Context(), &user.DefaultInfo{Name: "alice"}, "/metrics")
			if got != want || (err == nil) != known {
				t.Errorf("%s: %v %v, want %v", when, got, err, want)
			}
		}
		away = errors.New("away")
		expect("while nobody answers", false, false)
		away = nil
		expect("a refusal is not made of that", false, true)
		allowed = true
		expect("just given", false, true)
		time.Sleep(noTTL + time.Second)
		expect("given", true, true)
		allowed = false
		expect("just taken", true, true)
		time.Sleep(yesTTL + time.Second)
		expect("taken", false, true)
	})
}
