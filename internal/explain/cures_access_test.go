package explain_test

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
)

// accessCures are those of what the hub may not read or write, or cannot read.
var accessCures = []cure{
	{
		name: "missing right",
		prepare: func(s *cureScene) {
			s.entry = quickRetries
			s.runAsAccount(func(r rights.Right) bool { return r.Verb == "patch" && r.Subresource == "status" })
		},
		verdict: diagnosis.RightMissing, words: []string{`User "system:serviceaccount:{name}-hub:hub" cannot patch resource "volumeattachments/status"`},
	},
	{
		name: "missing secret",
		prepare: func(s *cureScene) {
			s.entry = quickRetries
			s.pv.Secret = &corev1.SecretReference{Namespace: s.name, Name: "array-login"}
			s.must(os.WriteFile(filepath.Join(s.world.Dir, "login.env"), []byte("user=hub\npassword=hunter2\n"), 0o600))
		},
		verdict: diagnosis.SecretMissing, object: "Secret {name}/array-login", words: []string{"does not exist"},
		fill: map[string]string{"FILE": "login.env"},
	},
}

// quickRetries keep the test from waiting for the next try.
var quickRetries = []string{"retry:", "  initial: 200ms", "  max: 1s"}

// hubAccount is the ServiceAccount of a hub that runAsAccount runs.
const hubAccount = "hub"

// runAsAccount runs the hub as a ServiceAccount with the rights that a hub needs, but for some.
func (s *cureScene) runAsAccount(without func(rights.Right) bool) {
	s.t.Helper()
	_, err := s.kube.CoreV1().ServiceAccounts(s.hubSpace).Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: hubAccount}}, metav1.CreateOptions{})
	s.must(err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	for _, r := range rights.Needed(rights.Features{ReplicaNamespace: s.hubSpace}) {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		if !without(r) {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Group}, Resources: []string{resource}})
		}
	}
	_, err = s.kube.RbacV1().ClusterRoles().Create(s.ctx, role, metav1.CreateOptions{})
	s.must(err)
	_, err = s.kube.RbacV1().ClusterRoleBindings().Create(s.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: s.name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.hubSpace, Name: hubAccount}}}, metav1.CreateOptions{})
	s.must(err)
	s.kubeconfig = filepath.Join(s.world.Dir, "account.kubeconfig")
	s.must(s.world.Plane.WriteAccountKubeconfig(s.ctx, s.kubeconfig, s.hubSpace, hubAccount))
}
