package hub

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
)

// secretTTL is how long it is believed that a secret can be read, or not.
const secretTTL = time.Minute

// secretTimeout bounds one request for a secret.
const secretTimeout = 30 * time.Second

// secretLooks knows which secrets can be read. Their values are not looked at and not kept.
type secretLooks struct {
	secrets corev1client.SecretsGetter

	mu   sync.Mutex
	last map[corev1.SecretReference]secretLook // guarded by mu
}

// secretLook is whether a secret could be read.
type secretLook struct {
	when time.Time
	err  error
}

func newSecretLooks(secrets corev1client.SecretsGetter) *secretLooks {
	return &secretLooks{secrets: secrets, last: map[corev1.SecretReference]secretLook{}}
}

// look says whether a secret can be read, as of the last minute. An error that is
// attach.NotReady is about the Kubernetes API of the moment and not about the secret.
func (l *secretLooks) look(ctx context.Context, ref corev1.SecretReference) error {
	l.mu.Lock()
	known, ok := l.last[ref]
	l.mu.Unlock()
	if ok && time.Since(known.when) < secretTTL {
		return known.err
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	_, err := l.secrets.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if attach.NotReady(err) {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[ref] = secretLook{when: time.Now(), err: err}
	return err
}

// review looks again at what could not be read: somebody may have put it right. It forgets
// the secrets that are not needed any more.
func (l *secretLooks) review(ctx context.Context, needed map[corev1.SecretReference]bool) {
	for _, ref := range l.overdue(needed) {
		_ = l.look(ctx, ref) // it keeps what it finds
	}
}

// overdue returns the secrets that could not be read and are needed still.
func (l *secretLooks) overdue(needed map[corev1.SecretReference]bool) (refs []corev1.SecretReference) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ref, look := range l.last {
		switch {
		case time.Since(look.when) < secretTTL: // who has asked may not have noted yet that it is needed
		case !needed[ref]:
			delete(l.last, ref)
		case look.err != nil:
			refs = append(refs, ref)
		}
	}
	return refs
}

// failed counts the secrets that could not be read, and returns one of them with why.
func (l *secretLooks) failed() (failed, all int, example corev1.SecretReference, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ref, look := range l.last {
		if look.err != nil {
			failed, example, err = failed+1, ref, look.err
		}
	}
	return failed, len(l.last), example, err
}
