package deploy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// roleAlone returns a role of the hub and its binding, with names of their own and for a
// user of that name.
func roleAlone(t *testing.T, role *unstructured.Unstructured, user string) []*unstructured.Unstructured {
	t.Helper()
	role = role.DeepCopy()
	role.SetName(user + "-" + role.GetName())
	binding := &unstructured.Unstructured{Object: map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": role.GetKind(), "name": role.GetName()},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}},
	}}
	binding.SetAPIVersion(role.GetAPIVersion())
	binding.SetKind(role.GetKind() + "Binding")
	binding.SetName(role.GetName())
	binding.SetNamespace(role.GetNamespace())
	return []*unstructured.Unstructured{role, binding}
}

// TestTheCheckAtTheStartNamesWhicheverRightIsTakenAway takes each right from the roles in
// turn, all others left as they are, and has whoever has what is left ask the API server
// as a hub does at its start. That each is also used, so that something fails without it,
// is for TestHubNeedsEveryRightThatItIsGivenAndNoOther to show.
func TestTheCheckAtTheStartNamesWhicheverRightIsTakenAway(t *testing.T) {
	config := testbed.Shared(t).RESTConfig()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	applier, objects := newApplier(ctx, t), objectsOf(t, withProxies)
	var roles []*unstructured.Unstructured
	for _, o := range objects {
		switch o.GetKind() {
		case "Namespace":
			applier.apply(o)
		case "Role", "ClusterRole":
			roles = append(roles, o)
		}
	}
	needed := rights.Needed(featuresFor("csi.vsphere.vmware.com"))
	user := func(i int) string { return fmt.Sprintf("hub-without-%d", i) }
	for i, right := range needed {
		resource := right.Resource
		if right.Subresource != "" {
			resource += "/" + right.Subresource
		}
		given := 0
		for _, role := range roles {
			if role.GetNamespace() == right.Namespace {
				left, taken := without(t, role, right.Verb, resource)
				role = left
				if taken {
					given++
				}
			}
			applier.apply(roleAlone(t, role, user(i))...)
		}
		if given != 1 {
			t.Errorf("the right to %s is given by %d roles, want one", right, given)
		}
	}
	for i, right := range needed {
		config := rest.CopyConfig(config)
		config.Impersonate.UserName, config.QPS = user(i), -1
		client := newClient(t, config)
		poll(ctx, t, fmt.Sprintf("without the right to %s that one is missing, and no other", right), func() bool {
			missing, err := rights.Missing(ctx, client.AuthorizationV1(), needed)
			if err != nil {
				t.Fatal(err)
			}
			return slices.Equal(missing, []rights.Right{right})
		})
	}
}
