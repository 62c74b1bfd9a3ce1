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

func TestAnswerAboutASecretCountsForAMinuteUnlessTheAPIServerDoesNotServe(t *testing.T) {
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
		expect := func(when string, forbidden bool, wantAsked int) {
			t.Helper()
			if err := s.check(t.Context(), ref); apierrors.IsForbidden(err) != forbidden || asked != wantAsked {
				t.Errorf("%s: got %v, asked %d times, want %d", when, err, asked, wantAsked)
			}
		}
		answer = apierrors.NewServiceUnavailable("overload")
		expect("an API server that does not serve", false, 1)
		answer = apierrors.NewForbidden(corev1.Resource("secrets"), "s", errors.New("no rule"))
		expect("forbidden", true, 2)
		answer = nil
		expect("allowed, too soon", true, 2)
		time.Sleep(secretTTL)
		expect("allowed", false, 3)
		time.Sleep(secretTTL)
		if err := s.check(t.Context(), corev1.SecretReference{Namespace: "default", Name: "other"}); err != nil || len(s.answers) != 1 {
			t.Errorf("%v; %d answers are kept, want only the new one", err, len(s.answers))
		}
	})
}
