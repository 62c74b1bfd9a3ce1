package bench

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	sidecarNamespace = "storage"
	sidecarAccount   = "csi-attacher"
)

// sidecarRules are those that csi-attacher's own deployment has in every cluster.
var sidecarRules = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "patch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"get", "list", "watch", "patch"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}},
}

// makeSidecarAccount makes the ServiceAccount of csi-attacher with its rights. It is not in kube-system, so its requests go to
// workload-low.
func makeSidecarAccount(ctx context.Context, client kubernetes.Interface) error {
	namespace := metav1.ObjectMeta{Name: sidecarNamespace}
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: namespace}, metav1.CreateOptions{})
	meta := metav1.ObjectMeta{Name: sidecarAccount}
	if err == nil {
		_, err = client.CoreV1().ServiceAccounts(sidecarNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: sidecarRules}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: sidecarAccount},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: sidecarNamespace, Name: sidecarAccount}}}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make the ServiceAccount of csi-attacher: %w", err)
	}
	return nil
}
