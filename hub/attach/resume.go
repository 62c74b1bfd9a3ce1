package attach

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Attach carries out a plan to attach: finalizers, then the call, then the
// status. It blocks for as long as these take, and stops at the first error: a
// *CallError, ErrStale, an error of the Kubernetes API. Whatever the error, the
// finalizers stay: only an unpublish proves that a volume is detached.
func (a Attacher) Attach(ctx context.Context, plan Plan, p *Progress) error {
	if plan.Publish == nil {
		if err := a.Guard(ctx, plan); err != nil || !plan.MarkAttached {
			return err
		}
		return a.MarkAttached(ctx, plan, nil)
	}
	if p.state != published || p.Target != plan.Target {
		secrets, err := a.Secrets(ctx, plan.SecretRef)
		if err != nil {
			return err
		}
		if err := a.Guard(ctx, plan); err != nil {
			return err
		}
		if err := a.publish(ctx, plan, p, secrets); err != nil {
			return err
		}
	}
	if err := a.MarkAttached(ctx, plan, p.context); err != nil {
		if Rejected(err) { // the driver may give another publish context when it is asked again
			p.state, p.context = uncertain, nil
		}
		return err
	}
	p.state, p.context = recorded, nil
	return nil
}

// Detach carries out a plan to detach: the call, then the finalizer, then the
// status if the object still lives. Errors are as in Attach. Any error of the
// call, NotFound too, means not detached, as with csi-attacher.
func (a Attacher) Detach(ctx context.Context, plan Plan, p *Progress) error {
	if plan.Unpublish != nil && !(p.state == unpublished && p.Target == plan.Target) {
		if err := a.unpublish(ctx, plan.Target, plan.SecretRef, p); err != nil {
			return err
		}
	}
	// The finalizer goes first: as long as the status says attached, nobody takes the
	// volume for free (external-attacher issue 587), and a status of an object that
	// is gone need not be written.
	va, err := a.Release(ctx, plan)
	if err != nil || va == nil {
		return err
	}
	return a.MarkDetached(ctx, va)
}

// UnpublishKnown makes the call alone where p knows the volume to be, for a VolumeAttachment
// that is gone.
func (a Attacher) UnpublishKnown(ctx context.Context, p *Progress) error {
	return a.unpublish(ctx, p.Target, p.SecretRef, p)
}

func (a Attacher) publish(ctx context.Context, plan Plan, p *Progress, secrets map[string]string) error {
	p.Target, p.SecretRef, p.secretKnown = plan.Target, plan.SecretRef, true
	p.nodes = nodeModeOf(plan.Publish.GetVolumeCapability().GetAccessMode().GetMode())
	p.state, p.context = uncertain, nil
	publishContext, err := a.Publish(ctx, plan, secrets)
	if err != nil {
		return err
	}
	p.state, p.context, p.secrets = published, publishContext, secrets
	return nil
}

func (a Attacher) unpublish(ctx context.Context, target Target, ref *corev1.SecretReference, p *Progress) error {
	secrets, err := a.UnpublishSecrets(ctx, target, Record{Target: p.Target, SecretRef: p.SecretRef, SecretKnown: p.secretKnown}, ref, p.secrets)
	if err != nil {
		return err
	}
	if err := a.Unpublish(ctx, target, secrets); err != nil {
		return err
	}
	p.Target, p.state, p.nodes, p.context, p.secrets = target, unpublished, UnknownNodes, nil, nil
	return nil
}
