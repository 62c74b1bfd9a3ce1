package deploy_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// grantedIn returns the rights that manifests give, sorted, in the words of rights.Right. A role that is not in the
// manifests may grant anything. All are the hub's: the Role for Events is in another namespace, and drivers have theirs.
func grantedIn(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var all []string
	for _, o := range objects {
		if kind := o.GetKind(); kind != "RoleBinding" && kind != "ClusterRoleBinding" {
			continue
		}
		b := as[rbacv1.RoleBinding](t, o) // a ClusterRoleBinding has the same fields
		if hub := (rbacv1.Subject{Kind: "ServiceAccount", Name: "csi-attach-hub", Namespace: "csi-attach-hub"}); !slices.Equal(b.Subjects, []rbacv1.Subject{hub}) {
			t.Errorf("%s %s is for %v", o.GetKind(), o.GetName(), b.Subjects)
		}
		role := slices.IndexFunc(objects, func(r *unstructured.Unstructured) bool {
			return r.GetKind() == b.RoleRef.Kind && r.GetName() == b.RoleRef.Name && (b.RoleRef.Kind == "ClusterRole" || r.GetNamespace() == b.Namespace)
		})
		if role < 0 {
			all = append(all, fmt.Sprintf("use %s %s, which is not in the manifests", b.RoleRef.Kind, b.RoleRef.Name))
			continue
		}
		all = append(all, grants(t, objects[role], b.Namespace)...)
	}
	slices.Sort(all)
	return all
}

// grants returns the rights of a role that is bound in a namespace, or in none.
func grants(t *testing.T, role *unstructured.Unstructured, namespace string) []string {
	t.Helper()
	var all []string
	for _, r := range as[rbacv1.ClusterRole](t, role).Rules { // a Role has the same fields
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != strings.ToLower(name) }) // no object has such a name
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range names {
						all = append(all, inWords(verb, group, resource, name, namespace))
					}
				}
			}
		}
		all = append(all, r.NonResourceURLs...)
	}
	if _, aggregated := role.Object["aggregationRule"]; aggregated {
		all = append(all, "use what "+role.GetName()+" aggregates")
	}
	return all
}

func inWords(verb, group, resource, name, namespace string) string {
	s := verb + " " + resource
	if group != "" {
		s += "." + group
	}
	if name != "" {
		s += "/" + name
	}
	if namespace != "" {
		s += " in namespace " + namespace
	}
	return s
}

// What values give the hub is what it checks that it has, to the last verb: no right on all Secrets or leases of a namespace that is
// not its own. Right.String has a group behind the subresource, as RBAC has it in its own errors.
func TestManifestsGiveTheHubWhatItChecksAndNoMore(t *testing.T) {
	vsphere := []rights.Lease{{Namespace: "storage", Name: registry.LeaseName("csi.vsphere.vmware.com")}}
	for values, leases := range map[string][]rights.Lease{
		ofInstallYAML: nil, withProxies: vsphere, withOpenShift: vsphere, withSecrets: vsphere,
		withHostSockets: {{Namespace: "kube-system", Name: registry.LeaseName("ebs.csi.aws.com")}},
	} {
		var needed []string
		for _, r := range rights.Needed(rights.Features{Leases: leases, ReplicaNamespace: "csi-attach-hub", Discovery: true}) {
			needed = append(needed, r.String())
		}
		if values == withSecrets {
			needed = append(needed, "get secrets/vsphere-credentials in namespace storage")
		}
		slices.Sort(needed)
		if diff := cmp.Diff(needed, grantedIn(t, objectsOf(t, values))); diff != "" {
			t.Errorf("%s: (-checked +granted):\n%s", values, diff)
		}
	}
}

// kubectl takes what begins with a brace for JSON, so the manifest must be YAML in blocks. Markdown takes four spaces off a line: only then
// does a shell find its end.
func TestTheLeaseOfTheREADMECanBeCreated(t *testing.T) {
	block := regexp.MustCompile(`(?s)kubectl create -f - <<'EOF'\n(.*?)\n {4}EOF\n`).FindSubmatch(readFile(t, "README.md"))
	if block == nil {
		t.Fatal("the README creates no Lease")
	}
	text := regexp.MustCompile(`(?m)^ {4}`).ReplaceAll(block[1], nil)
	if bytes.HasPrefix(text, []byte("{")) {
		t.Errorf("kubectl takes this for JSON: %s", text)
	}
	got := new(unstructured.Unstructured)
	if err := yaml.Unmarshal(text, &got.Object); err != nil {
		t.Fatal(err)
	}
	lease := as[coordinationv1.Lease](t, got)
	granted := inWords("update", "coordination.k8s.io", "leases", lease.Name, lease.Namespace)
	if lease.Kind != "Lease" || lease.APIVersion != "coordination.k8s.io/v1" || !slices.Contains(grantedIn(t, objectsOf(t, withProxies)), granted) {
		t.Errorf("not a Lease that the hub may %s: %v", granted, got.Object)
	}
}
