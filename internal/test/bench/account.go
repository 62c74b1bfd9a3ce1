package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// As in deploy/install.yaml.
	hubNamespace = "csi-attach-hub"
	hubAccount   = "csi-attach-hub"
	hubRole      = "csi-attach-hub"
	flowSchemas  = "FlowSchema"

	// otherAccount is the ServiceAccount of all other competitors, in namespace default. It has the hub's rights, which suffice
	// for them, and no FlowSchema of its own, as that of a csi-attacher.
	otherAccount = "attacher"
)

// applyBase applies what deploy/install.yaml has for the hub's ServiceAccount, and makes that of the other competitors.
func (s *stage) applyBase(ctx context.Context) error {
	if err := s.Plane.ApplyInstallation(ctx, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", flowSchemas); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: otherAccount}
	_, account := s.client().CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	_, rights := s.client().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hubRole},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: otherAccount}}}, metav1.CreateOptions{})
	if err := errors.Join(account, rights); err != nil {
		return fmt.Errorf("make serviceaccount %s: %w", otherAccount, err)
	}
	return nil
}

// kubeconfig returns the path of the kubeconfig of a competitor: that of its ServiceAccount if API Priority and Fairness is on, else
// one with all rights.
func (s *stage) kubeconfig(ctx context.Context, namespace, account string) (string, error) {
	if !s.c.fair {
		return s.Plane.Kubeconfig(), nil
	}
	path := s.file(account + ".kubeconfig")
	return path, s.Plane.WriteAccountKubeconfig(ctx, path, namespace, account)
}
