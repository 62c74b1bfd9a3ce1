package observe

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestAnswerAboutASecretCountsForAMinuteUnlessTheAPIServerDoesNotServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer error
		asked := 0
		s := newSecrets(func(context.Context, corev1.SecretReference) (*corev1.Secret, error) {
			asked++
			return &corev1.Secret{}, answer
		})
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
