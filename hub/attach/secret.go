package attach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// unpublishSecrets reads the secrets for the call of a plan to detach: those of the secret that the
// volume was published with, or else of the plan's. If that secret is gone, it returns those of the
// plan's secret, or else those that the volume was published with by this process
// (rook issue 16956).
func (a Attacher) unpublishSecrets(ctx context.Context, plan Plan, p *Progress) (map[string]string, error) {
	ref := p.secretRef(plan)
	secrets, err := a.secrets(ctx, ref)
	if !apierrors.IsNotFound(err) {
		return secrets, err
	}
	if now := plan.SecretRef; now != nil && *now != *ref {
		if secrets, err := a.secrets(ctx, now); !apierrors.IsNotFound(err) {
			return secrets, err
		}
	}
	if p.secrets != nil && p.Target == plan.Target {
		return p.secrets, nil
	}
	return nil, err
}

// secretRef returns the secret that the volume of a plan was published with, as far as that is
// known, or else the plan's: a PersistentVolume can be recreated with another one.
func (p *Progress) secretRef(plan Plan) *corev1.SecretReference {
	if p.secretKnown && p.Target.VolumeHandle == plan.Target.VolumeHandle {
		return p.SecretRef
	}
	return plan.SecretRef
}
