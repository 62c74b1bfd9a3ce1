package observe

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

const (
	// secretTTL is how long the answer counts whether a Secret can be read.
	secretTTL = time.Minute
	// secretTimeout bounds one request for a Secret.
	secretTimeout = 30 * time.Second
)

// secrets knows which Secrets the hub can read. It keeps no value of a Secret.
type secrets struct {
	client corev1client.SecretsGetter

	mu      sync.Mutex
	answers map[corev1.SecretReference]answer // guarded by mu
}

// answer is how the API server answered a request for a Secret.
type answer struct {
	at  time.Time
	err error
}

func newSecrets(client corev1client.SecretsGetter) *secrets {
	return &secrets{client: client, answers: map[corev1.SecretReference]answer{}}
}

// check returns nil if a Secret can be read. The answer is at most a minute old. An error that is
// attach.NotReady is a failure of the Kubernetes API and says nothing about the Secret.
func (s *secrets) check(ctx context.Context, ref corev1.SecretReference) error {
	s.mu.Lock()
	last, ok := s.answers[ref]
	s.mu.Unlock()
	if ok && time.Since(last.at) < secretTTL {
		return last.err
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	_, err := s.client.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if attach.NotReady(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[ref] = answer{at: time.Now(), err: err}
	return err
}

// review reads the needed Secrets again that could not be read: the missing right may have been granted. It
// forgets the Secrets that are not needed any more.
func (s *secrets) review(ctx context.Context, needed map[corev1.SecretReference]bool) {
	for _, ref := range s.overdue(needed) {
		_ = s.check(ctx, ref) // it keeps the answer
	}
}

// overdue forgets the Secrets that are not needed, and returns those that could not be read.
func (s *secrets) overdue(needed map[corev1.SecretReference]bool) (refs []corev1.SecretReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, a := range s.answers {
		switch {
		case time.Since(a.at) < secretTTL: // the worker that asked may not have noted yet who needs it
		case !needed[ref]:
			delete(s.answers, ref)
		case a.err != nil:
			refs = append(refs, ref)
		}
	}
	return refs
}

// failed counts the Secrets, and those that could not be read, and returns one of these with the error.
func (s *secrets) failed() (failed, all int, example corev1.SecretReference, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, a := range s.answers {
		if a.err != nil {
			failed, example, err = failed+1, ref, a.err
		}
	}
	return failed, len(s.answers), example, err
}
