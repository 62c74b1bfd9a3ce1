package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// bound makes a volume, a claim that is bound to it, and a Pod with the claim on a node, all of one name.
func (s *scene) bound(name, driver, node string, secret *corev1.SecretReference) {
	s.t.Helper()
	s.create(testbed.PersistentVolume{Name: name, Driver: driver, Claim: name, Secret: secret})
	s.must(s.Cluster.BindClaim(s.ctx, testbed.PersistentVolumeClaim{Name: name, PersistentVolume: name}))
	s.create(testbed.Pod{Name: name, Node: node, Claims: []string{name}})
}

// attach asks for a volume of its own name on a node.
func (s *scene) attach(name, driver, node string) {
	s.t.Helper()
	s.create(testbed.VolumeAttachment{Name: name, Driver: driver, Node: node, PersistentVolume: name})
}

// kubeconfigFor writes one for a user with no rights but these.
func (s *scene) kubeconfigFor(user string, rules []rbacv1.PolicyRule) string {
	s.t.Helper()
	rbac := s.Plane.Clientset().RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	_, roleErr := rbac.ClusterRoles().Create(s.ctx, role, metav1.CreateOptions{})
	_, bindingErr := rbac.ClusterRoleBindings().Create(s.ctx, binding, metav1.CreateOptions{})
	config, err := clientcmd.LoadFromFile(s.Plane.Kubeconfig())
	s.must(errors.Join(roleErr, bindingErr, err))
	if len(rules) > 0 {
		testbed.WaitAllowed(s.t, s.Plane.Clientset(), authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0]}})
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := filepath.Join(s.Dir, user)
	s.must(clientcmd.WriteToFile(*config, path))
	return path
}

func TestExplainNeedsTheRightsThatAreDocumentedAndNoSecret(t *testing.T) {
	s := newScene(t, "rights")
	s.create(testbed.Node{Name: "rights-a"}, testbed.CSINode{Node: "rights-a", Drivers: map[string]string{"rights-d": "id"}},
		testbed.Secret{Name: "rights-secret", Data: map[string]string{"password": "hidden"}})
	s.bound("rights-pod", "rights-d", "rights-a", &corev1.SecretReference{Namespace: "default", Name: "rights-secret"})
	s.attach("rights-pod", "rights-d", "rights-a")
	nobody := s.kubeconfigFor("rights-nobody", nil)
	if out, problems, code := s.askAs(nobody, "explain", "pod/default/rights-pod"); code != exitNoAnswer || !strings.Contains(problems, "forbidden") {
		t.Errorf("without rights: exit code %d, want 3:\n%s%s", code, out, problems)
	}
	explainer := s.kubeconfigFor("rights-explainer", []rbacv1.PolicyRule{ // as deploy/OPERATE.md says
		{APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims", "persistentvolumes", "nodes"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments", "csinodes", "csidrivers", "storageclasses"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
	})
	out, problems, code := s.askAs(explainer, "explain", "pod/default/rights-pod", "-o", "json")
	var r explain.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 {
		t.Fatalf("exit code %d, want 1: %v\n%s%s", code, err, out, problems)
	}
	if len(r.Unknown) != 1 || strings.Contains(r.Unknown[0], "forbidden") || r.Volumes[0].Stop.Verdict != diagnosis.LeaseMissing {
		t.Errorf("want the hub alone not known, and a stop for want of a lease:\n%s", r.Text(statustable.Style{}, true))
	}
	if out, _, _ := s.askAs(s.Plane.Kubeconfig(), "explain", "pod/default/rights-pod", "-o", "json"); strings.Contains(out, "aGlkZGVu") || strings.Contains(out, "hidden") || strings.Contains(out, "rights-secret") {
		t.Errorf("the secret exists, and is spoken of:\n%s", out)
	}
	if out, _, code := s.askAs(explainer, "explain", "no-such"); code != exitUsage || !strings.Contains(out, "does not exist") {
		t.Errorf("exit code %d, want 2: %s", code, out)
	}
}
