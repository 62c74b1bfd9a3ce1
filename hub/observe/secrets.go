package observe

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	read func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error)

	mu      sync.Mutex
	answers map[corev1.SecretReference]answer // guarded by mu
}

// answer is how the API server answered a request for a Secret.
type answer struct {
	at  time.Time
	err error
}

func newSecrets(read func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error)) *secrets {
	return &secrets{read: read, answers: map[corev1.SecretReference]answer{}}
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
	_, err := s.read(ctx, ref)
	if attach.NotReady(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.answers, func(_ corev1.SecretReference, a answer) bool { return time.Since(a.at) >= secretTTL })
	s.answers[ref] = answer{at: time.Now(), err: err}
	return err
}
