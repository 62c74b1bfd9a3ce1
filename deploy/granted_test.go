package deploy_test

import (
	"regexp"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// grantedIn returns the rights that manifests give the hub's ServiceAccount, sorted, in the words of rights.Right.
func grantedIn(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	var all []string
	for _, o := range objects {
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" || !boundToHub(t, objects, o) {
			continue
		}
		for _, r := range as[rbacv1.Role](t, withoutAggregation(o)).Rules {
			names := r.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, verb := range r.Verbs {
						for _, name := range names {
							all = append(all, inWords(verb, group, resource, name, o.GetNamespace()))
						}
					}
				}
			}
			for _, url := range r.NonResourceURLs {
				all = append(all, url)
			}
		}
	}
	slices.Sort(all)
	return all
}

// withoutAggregation lets a ClusterRole be read as a Role, which has the same rules.
func withoutAggregation(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "aggregationRule")
	return o
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

// boundToHub reports whether a binding gives the role to the hub's ServiceAccount.
func boundToHub(t *testing.T, objects []*unstructured.Unstructured, role *unstructured.Unstructured) bool {
	t.Helper()
	hub := rbacv1.Subject{Kind: "ServiceAccount", Name: "csi-attach-hub", Namespace: "csi-attach-hub"}
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		if o.GetKind() != role.GetKind()+"Binding" || o.GetNamespace() != role.GetNamespace() {
			return false
		}
		b := as[rbacv1.RoleBinding](t, o)
		return b.RoleRef.Kind == role.GetKind() && b.RoleRef.Name == role.GetName() && slices.Contains(b.Subjects, hub)
	})
}

// allowed matches each right that manifests may give the hub, and no other.
var allowed = regexp.MustCompile(`^(` +
	`(get|list|watch|patch) (persistentvolumes|volumeattachments\.storage\.k8s\.io)` +
	`|patch volumeattachments/status\.storage\.k8s\.io` +
	`|(get|list|watch) csinodes\.storage\.k8s\.io` +
	`|(list|watch) csidrivers\.storage\.k8s\.io` +
	`|get nodes` +
	`|create tokenreviews\.authentication\.k8s\.io` +
	`|create subjectaccessreviews\.authorization\.k8s\.io` +
	`|(create|patch) events in namespace default` +
	`|(get|list|watch|create|update|delete) leases\.coordination\.k8s\.io in namespace csi-attach-hub` +
	`|(get|list|watch|update) leases\.coordination\.k8s\.io/external-attacher-leader-[a-z0-9-]+ in namespace (storage|kube-system)` +
	`)$`)

// allowedIn has what a kustomization for tests gives beyond that, by its optional component.
var allowedIn = map[string]*regexp.Regexp{
	withPods:    regexp.MustCompile(`^list pods$`),
	withSecrets: regexp.MustCompile(`^get secrets/[a-z0-9-]+ in namespace storage$`),
}

// No overlay gives the hub a right on all Secrets or leases of a namespace that is not its own, or any other right
// that is not in the list above.
func TestNoManifestGivesTheHubMoreThanItNeeds(t *testing.T) {
	for _, folder := range kustomizations(t) {
		for _, right := range grantedIn(t, build(t, folder)) {
			if more := allowedIn[folder]; !allowed.MatchString(right) && (more == nil || !more.MatchString(right)) {
				t.Errorf("%s: the hub may %s", folder, right)
			}
		}
	}
}

// A component whose names nobody replaced gives rights on objects that cannot exist: their names have capitals.
func TestComponentsWithoutNamesGiveNothing(t *testing.T) {
	lowercase := regexp.MustCompile(`^[a-z0-9.-]*$`)
	for _, component := range []string{"components/leases", "components/secrets"} {
		for _, o := range build(t, component) {
			if o.GetKind() != "Role" {
				continue
			}
			for _, r := range as[rbacv1.Role](t, o).Rules {
				if len(r.ResourceNames) == 0 || slices.ContainsFunc(r.ResourceNames, lowercase.MatchString) {
					t.Errorf("%s: %v for %q", component, r.Verbs, r.ResourceNames)
				}
			}
		}
	}
}

func TestOverlaysNameTheLeasesOfTheirDrivers(t *testing.T) {
	for _, overlay := range []string{"overlays/proxies", "overlays/host-sockets"} {
		config, err := registry.ParseManifestFile(overlay + "/drivers.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, c := range config {
			for _, d := range c.Drivers() {
				for _, verb := range []string{"get", "list", "watch", "update"} {
					want = append(want, inWords(verb, "coordination.k8s.io", "leases", d.LeaseOf().Name, d.LeaseOf().Namespace))
				}
			}
		}
		slices.Sort(want)
		got := slices.DeleteFunc(grantedIn(t, build(t, overlay)), func(right string) bool {
			return !regexp.MustCompile(` leases\..*/`).MatchString(right)
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: rights on leases (-drivers.yaml +granted):\n%s", overlay, diff)
		}
	}
}
