package observe

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
)

func TestSecretThatCouldNotBeReadIsLookedAtAgainWhileItIsNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer error
		asked := 0
		kube := fake.NewClientset()
		kube.PrependReactor("get", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
			asked++
			return true, &corev1.Secret{}, answer
		})
		s := newSecrets(kube.CoreV1())
		ref := corev1.SecretReference{Namespace: "default", Name: "s"}
		needed := map[corev1.SecretReference]bool{ref: true}
		expect := func(when string, wantFailed, wantAll, wantAsked int) {
			t.Helper()
			if failed, all, _, _ := s.failed(); failed != wantFailed || all != wantAll || asked != wantAsked {
				t.Errorf("%s: %d of %d failed, asked %d times, want %d of %d, %d times", when, failed, all, asked, wantFailed, wantAll, wantAsked)
			}
		}
		answer = apierrors.NewServiceUnavailable("overload")
		if err := s.check(t.Context(), ref); err == nil {
			t.Error("no error of an API server that does not serve")
		}
		expect("an API server that does not serve", 0, 0, 1)
		answer = apierrors.NewForbidden(corev1.Resource("secrets"), "s", errors.New("no rule"))
		for range 2 {
			if err := s.check(t.Context(), ref); !apierrors.IsForbidden(err) {
				t.Errorf("got %v, want that it is forbidden", err)
			}
		}
		expect("forbidden", 1, 1, 2)
		answer = nil
		s.review(t.Context(), needed)
		expect("too soon", 1, 1, 2)
		time.Sleep(secretTTL)
		s.review(t.Context(), needed)
		expect("allowed by now", 0, 1, 3)
		time.Sleep(secretTTL)
		s.review(t.Context(), needed)
		expect("what can be read is not read again", 0, 1, 3)
		s.review(t.Context(), nil)
		expect("needed by nobody", 0, 0, 3)
	})
}
