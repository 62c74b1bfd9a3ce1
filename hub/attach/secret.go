package attach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ReadSecret reads a Secret that a volume names, unless mayName returns an error: whoever may write a PersistentVolume could
// send the Secret of another driver to this one. No other code reads Secrets for a driver.
func ReadSecret(ctx context.Context, kube corev1client.SecretsGetter, mayName func(corev1.SecretReference) error, ref corev1.SecretReference) (*corev1.Secret, error) {
	if mayName != nil {
		if err := mayName(ref); err != nil {
			return nil, notAllowedError{err}
		}
	}
	return kube.Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}

// notAllowedError is about a Secret that volumes of the driver may not name.
type notAllowedError struct{ error }

// UnpublishSecrets reads the secrets for the unpublish of a volume at a target. It reads the Secret
// that the volume was published with, if that is known, or else now, the Secret of the
// PersistentVolume, which may have been recreated with another Secret. If the first Secret is gone, it
// reads now. If that is gone too, it returns published: the secrets that this process published the
// volume with, or nil (rook issue 16956).
func (a Attacher) UnpublishSecrets(ctx context.Context, target Target, r Record, now *corev1.SecretReference, published map[string]string) (map[string]string, error) {
	ref := now
	if r.SecretKnown && r.Target.VolumeHandle == target.VolumeHandle {
		ref = r.SecretRef
	}
	secrets, err := a.Secrets(ctx, ref)
	if !apierrors.IsNotFound(err) {
		return secrets, err
	}
	if now != nil && *now != *ref {
		if secrets, err := a.Secrets(ctx, now); !apierrors.IsNotFound(err) {
			return secrets, err
		}
	}
	if published != nil && r.Target == target {
		return published, nil
	}
	return nil, err
}
