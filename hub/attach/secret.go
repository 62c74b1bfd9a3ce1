package attach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

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
