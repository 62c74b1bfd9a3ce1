package observe

import (
	"context"
	"errors"
	"slices"
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

// A fixed period skipped every second review: an answer is younger than the period by the time of its request.
func TestSecretThatCannotBeReadIsReadAgainEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const latency = 10 * time.Millisecond
		var asked []time.Duration
		begin := time.Now()
		kube := fake.NewClientset()
		kube.PrependReactor("get", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
			asked = append(asked, time.Since(begin).Truncate(time.Minute))
			time.Sleep(latency)
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "s", errors.New("no rule"))
		})
		ref := corev1.SecretReference{Namespace: "default", Name: "s"}
		o := &Observer{secrets: newSecrets(kube.CoreV1()), findings: newFindings("d", nil)}
		o.findings.attachments["v"] = &attachment{secret: &ref}
		ctx, cancel := context.WithCancel(t.Context())
		_ = o.secrets.check(ctx, ref)
		go o.reviewSecrets(ctx)
		time.Sleep(4*time.Minute + time.Second)
		cancel()
		synctest.Wait()
		if want := []time.Duration{0, 1 * time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute}; !slices.Equal(asked, want) {
			t.Errorf("read in the minutes %v, want %v", asked, want)
		}
	})
}
