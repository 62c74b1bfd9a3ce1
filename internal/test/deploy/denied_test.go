package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// without returns a role without one verb on one resource, and whether it had that.
func without(t *testing.T, role *unstructured.Unstructured, verb, resource string) (left *unstructured.Unstructured, taken bool) {
	t.Helper()
	left = role.DeepCopy()
	rules, _, _ := unstructured.NestedSlice(left.Object, "rules")
	for _, rule := range rules {
		rule := rule.(map[string]any)
		resources, _ := rule["resources"].([]any) // none: a right to look at the hub
		if !slices.Contains(resources, any(resource)) {
			continue
		}
		verbs := rule["verbs"].([]any)
		had := len(verbs)
		rule["verbs"] = slices.DeleteFunc(verbs, func(v any) bool { return v == verb })
		taken = taken || len(rule["verbs"].([]any)) < had
	}
	rules = slices.DeleteFunc(rules, func(rule any) bool { return len(rule.(map[string]any)["verbs"].([]any)) == 0 })
	if err := unstructured.SetNestedSlice(left.Object, rules, "rules"); err != nil {
		t.Fatal(err)
	}
	return left, taken
}

// deny takes one right from a role, and waits until that is effective.
func (d *deployed) deny(r rights.Right) {
	d.t.Helper()
	denied := false
	for _, o := range d.objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" || o.GetNamespace() != r.Namespace {
			continue
		}
		left, taken := without(d.t, o, r.Verb, r.Resource)
		denied = denied || taken
		d.applier.apply(left)
	}
	if !denied {
		d.t.Fatalf("nothing gives the right to %s", r)
	}
	client := d.clientWith(d.token)
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	poll(d.ctx, d.t, "no right to "+r.String(), func() bool {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: subresource, Namespace: r.Namespace, Name: r.Name}}}
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(d.ctx, review, metav1.CreateOptions{})
		if err != nil {
			d.t.Fatal(err)
		}
		return !review.Status.Allowed
	})
}

func TestVolumesAreNotAttachedWithoutARight(t *testing.T) {
	for i, right := range []rights.Right{
		{Verb: "patch", Group: "storage.k8s.io", Resource: "volumeattachments/status"},
		{Verb: "get", Resource: "secrets", Namespace: "storage", Name: "denied-1-v"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "storage", Name: registry.LeaseName("denied-2-a")},
	} {
		t.Run(strings.ReplaceAll(right.String(), "/", "_"), func(t *testing.T) {
			d := deploy(t, fmt.Sprintf("denied-%d", i), "v")
			d.deny(right)
			t.Cleanup(func() { d.applier.ctx = context.Background(); d.applier.apply(d.objects...) })
			name, endpoint, _ := d.driver("a")
			node := d.prefix + "-node"
			d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id"}})
			_, va := d.volume("v", name, node)
			d.create(va)
			d.start(name, endpoint)
			d.recorder.wait(d.ctx, t, "refused: "+right.String(), func(_, refused map[string]bool) bool { return refused[right.String()] })
			d.hub.Kill()
			if got, err := d.client.StorageV1().VolumeAttachments().Get(d.ctx, d.prefix+"-v", metav1.GetOptions{}); err != nil || got.Status.Attached {
				t.Errorf("attached, or not there: %v", err)
			}
			if used, refused := d.recorder.state(); !slices.Equal(refused, []string{right.String()}) {
				t.Errorf("refused: %v, used: %v", refused, used)
			}
		})
	}
}

func TestALeaseThatDoesNotExistIsReportedWithWhatToDo(t *testing.T) {
	d := deploy(t, "absent", "v")
	name, endpoint, _ := d.driver("a")
	node, lease := d.prefix+"-node", registry.LeaseName(name)
	d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id"}})
	_, va := d.volume("v", name, node)
	d.create(va)
	d.run(name, endpoint)
	want := "lease storage/" + lease + " does not exist, and the hub may not create it; create the lease"
	poll(d.ctx, t, "the driver's reason: "+want, func() bool {
		open := d.address()
		var driver status.Driver
		return d.read(open+"/api/v1/drivers/"+name, &driver) && strings.Contains(driver.Reason, want)
	})
	if log := readFile(t, d.hub.LogPath()); bytes.Contains(log, []byte("right is missing")) {
		t.Errorf("want no missing right:\n%s", log)
	}
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease}}
	if _, err := d.client.CoordinationV1().Leases("storage").Create(d.ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.waitFor("attached", d.prefix+"-v", attached)
}

// SECURITY.md ends a hub that is taken over like this.
func TestTheEndOfTheServiceAccountEndsItsTokens(t *testing.T) {
	d := deploy(t, "ended", "v")
	read := func() error {
		_, err := d.clientWith(d.token).CoreV1().Secrets("storage").Get(d.ctx, "ended-v", metav1.GetOptions{})
		return err
	}
	if err := read(); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := d.client.RbacV1().ClusterRoleBindings().Delete(d.ctx, "csi-attach-hub", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.applier.ctx = context.Background(); d.applier.apply(d.objects...) })
	if err := read(); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("SECURITY.md says that RoleBindings still grant Secrets: %v", err)
	}
	if err := d.client.CoreV1().ServiceAccounts("csi-attach-hub").Delete(d.ctx, "csi-attach-hub", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(d.ctx, t, "the token is refused", func() bool { return apierrors.IsUnauthorized(read()) })
	d.applier.apply(d.objects...)
	if err := read(); !apierrors.IsUnauthorized(err) {
		t.Errorf("a new ServiceAccount makes the old token valid again: %v", err)
	}
}

// read reads an answer of the hub's API, false if nobody listens.
func (d *deployed) read(url string, into any) bool {
	d.t.Helper()
	response, err := http.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		d.t.Fatalf("%s: %v", url, err)
	}
	return true
}
