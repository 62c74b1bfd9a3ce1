package attach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// UnpublishSecrets reads the secrets for the unpublish of a volume at a target, from the Secret that
// it was published with, if that is known, or else from now, the Secret of its PersistentVolume: a
// PersistentVolume can be recreated with another one. If the Secret is gone, it reads now, or returns
// published, the secrets that this process published the volume with, nil for none (rook issue 16956).
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
