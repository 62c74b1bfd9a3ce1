package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// bindersAtOnce is how many claims are asked about at once.
const bindersAtOnce = 16

// makeClaims makes the volumes and claims that do not exist, and blocks until the claims are bound: otherwise
// the Pods would wait for the binder and not for the hub.
func (s *scene) makeClaims(ctx context.Context, w workload) error {
	for _, objects := range [][]testbed.Object{w.storage(), w.claims()} {
		if err := testbed.Each(ctx, bindersAtOnce, objects, s.Cluster.Ensure); err != nil {
			return err
		}
	}
	return testbed.Each(ctx, bindersAtOnce, w.volumes, func(ctx context.Context, v volume) error {
		return testbed.Insist(ctx, "wait until claim "+v.name+" is bound", func(ctx context.Context) error { return s.nudge(ctx, v.name) })
	})
}

// nudge returns nil if a claim is bound. Otherwise it changes the claim: the binder that saw a claim before its
// PersistentVolume looks at it again only after 15 seconds, or when it changes.
func (s *scene) nudge(ctx context.Context, name string) error {
	claims := s.Plane.Clientset().CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	claim, err := claims.Get(ctx, name, metav1.GetOptions{})
	if err != nil || claim.Status.Phase == corev1.ClaimBound {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"testbed/nudged":%q}}}`, time.Now().Format(time.RFC3339Nano))
	if _, err := claims.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	return fmt.Errorf("it is %s", claim.Status.Phase)
}
