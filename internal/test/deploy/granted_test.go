package deploy_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
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

// allowed matches each right that manifests may give the hub, and no other.
var allowed = regexp.MustCompile(`^(` +
	`(get|list|watch|patch) (persistentvolumes|volumeattachments\.storage\.k8s\.io)` +
	`|patch volumeattachments/status\.storage\.k8s\.io` +
	`|(get|list|watch) csinodes\.storage\.k8s\.io` +
	`|(list|watch) csidrivers\.storage\.k8s\.io` +
	`|get nodes` +
	`|(create|patch) events in namespace default` +
	`|(get|list|watch|create|update|delete) leases\.coordination\.k8s\.io in namespace csi-attach-hub` +
	`|(get|list|watch|update) leases\.coordination\.k8s\.io/external-attacher-leader-[a-z0-9-]+ in namespace (storage|kube-system)` +
	`)$`)

// allowedIn has what values give beyond that.
var allowedIn = map[string]*regexp.Regexp{
	withSecrets: regexp.MustCompile(`^get secrets/[a-z0-9-]+ in namespace storage$`),
}

// No values give the hub a right on all Secrets or leases of a namespace that is not its own, or any other right
// that is not in the list above.
func TestNoManifestGivesTheHubMoreThanItNeeds(t *testing.T) {
	for _, values := range installations {
		for _, right := range grantedIn(t, objectsOf(t, values)) {
			if more := allowedIn[values]; !allowed.MatchString(right) && (more == nil || !more.MatchString(right)) {
				t.Errorf("%s: the hub may %s", values, right)
			}
		}
	}
}

// kubectl takes what begins with a brace for JSON, so the manifest must be YAML in blocks.
func TestTheLeaseOfTheREADMECanBeCreated(t *testing.T) {
	block := regexp.MustCompile(`(?s)kubectl create -f - <<'EOF'\n(.*?)\n +EOF\n`).FindSubmatch(readFile(t, "README.md"))
	if block == nil {
		t.Fatal("the README creates no Lease")
	}
	text := regexp.MustCompile(`(?m)^ {6}`).ReplaceAll(block[1], nil)
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
