package attach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// UnpublishSecrets reads the secrets for the unpublish of a volume at a target: those of the Secret
// that it was published with, as far as known, or else of now, which is what its PersistentVolume
// says: that can be recreated with another Secret. If the Secret is gone, it returns those of now, or
// else published, which the volume was published with by this process (rook issue 16956); nil for
// none.
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
