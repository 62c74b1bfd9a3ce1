package tests

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// In the place of a sidecar the hub has to do with what the driver's manifest allows:
// the rules of csi-attacher's deploy/kubernetes/rbac.yaml know no CSIDriver objects.
func TestHubDoesWithThePermissionsOfCSIAttacher(t *testing.T) {
	w := newWorld(t)
	client := w.plane.Clientset()
	name := w.name("role")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}
	if _, err := client.RbacV1().ClusterRoles().Create(w.ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(w.ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := w.plane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	limited, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.options.Kube = limited

	driver, backend := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitForOne(va.Name, "attached", isAttached)
	w.delete(va)
	w.waitNoneLeft()
	if got := len(backend.Books().Attached); got != 0 {
		t.Errorf("%d volumes attached, want none", got)
	}
}
