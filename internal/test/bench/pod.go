package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// pod returns the Pod of a volume. It is bound to the node of the volume from the beginning: there is no scheduler.
func (v volume) pod() testbed.Pod {
	return testbed.Pod{Name: v.name, Node: v.node, Claims: []string{v.claim()}}
}

// claim returns the name of the claim of which persistentVolume says that it has the volume.
func (v volume) claim() string { return "data-" + v.name }

// attachedName returns the name of the volume in node.status.volumesAttached.
func (v volume) attachedName() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + v.driver + "^" + v.name)
}

// bindClaim makes the claim of the volume and binds them, as the persistentvolume-binder-controller does.
func (s *stage) bindClaim(ctx context.Context, v volume) error {
	claims := s.client().CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	claim, err := claims.Create(ctx, testbed.PersistentVolumeClaim{Name: v.claim(), PersistentVolume: v.name}.Build(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create persistentvolumeclaim %s: %w", v.claim(), err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"claimRef":{"uid":%q}}}`, claim.UID)
	if _, err := s.client().CoreV1().PersistentVolumes().Patch(ctx, v.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("bind persistentvolume %s: %w", v.name, err)
	}
	claim.Status.Phase, claim.Status.AccessModes, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.AccessModes, claim.Spec.Resources.Requests
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("bind persistentvolumeclaim %s: %w", v.claim(), err)
	}
	return nil
}
