package deploy_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// podRights returns the objects that the value pods.list adds.
func podRights(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	base := objectsOf(t, ofInstallYAML)
	return slices.DeleteFunc(objectsOf(t, withPods), func(o *unstructured.Unstructured) bool {
		return slices.ContainsFunc(base, func(b *unstructured.Unstructured) bool { return cmp.Equal(b.Object, o.Object) })
	})
}

func TestComponentPodsGrantsToListPodsAndNothingElse(t *testing.T) {
	var rules []rbacv1.PolicyRule
	for _, o := range podRights(t) {
		switch o.GetKind() {
		case "ClusterRole":
			rules = append(rules, as[rbacv1.ClusterRole](t, o).Rules...)
		case "ClusterRoleBinding": // TestEveryRightIsGivenToTheHub
		default:
			t.Errorf("it adds or changes %s %s", o.GetKind(), o.GetName())
		}
	}
	if diff := cmp.Diff([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}}, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestThePodsThatWaitAreShownOnlyWithTheComponent runs the hub as its ServiceAccount: first with the rights of
// withProxies, then with pods.list too.
func TestThePodsThatWaitAreShownOnlyWithTheComponent(t *testing.T) {
	const listPods = "list pods"
	d := deploy(t, "pods")
	d.denyPods()
	name, endpoint, backend := d.driver("a")
	if err := backend.Set(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = backend.Set(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true}) })
	node, claim := d.prefix+"-node", d.prefix+"-data"
	d.create(testbed.CSINode{Node: node, Drivers: map[string]string{name: "id"}},
		testbed.PersistentVolume{Name: claim, Driver: name, Claim: claim},
		testbed.Pod{Name: d.prefix + "-web", Node: node, Claims: []string{claim}},
		testbed.VolumeAttachment{Name: claim, Driver: name, Node: node, PersistentVolume: claim})
	// waitShown waits until the hub has answered the question for Pods, one way or the other.
	waitShown := func(known bool) {
		t.Helper()
		d.start(name, endpoint)
		poll(d.ctx, t, "the hub shows the claim and, with the right, the Pod", func() bool {
			open := d.address() // the last one in the log, which an earlier hub has begun
			var list status.AttachmentList
			var overview status.Overview
			return d.read(open+"/api/v1/attachments?driver="+name, &list) && d.read(open+"/api/v1/overview", &overview) &&
				len(list.Attachments) == 1 && list.Attachments[0].Claim == "default/"+claim && overview.PodsKnown == known &&
				slices.Equal(list.Attachments[0].Pods, []string{"default/" + d.prefix + "-web"}) == known
		})
		if err := d.hub.Stop(d.ctx, 30*time.Second); err != nil {
			t.Errorf("the hub did not end in order: %v", err)
		}
	}
	waitShown(false)
	if _, refused := d.recorder.state(); !slices.Equal(refused, []string{listPods}) {
		t.Errorf("refused: %v, want %s", refused, listPods)
	}
	if log := readFile(t, d.hub.LogPath()); bytes.Count(log, []byte("pods.list")) != 1 || bytes.Contains(log, []byte("Rights are missing")) {
		t.Errorf("want one line about the missing right, and no error:\n%s", log)
	}

	d.applier.apply(podRights(t)...)
	testbed.WaitAllowed(t, d.client, authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:csi-attach-hub:csi-attach-hub",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}})
	waitShown(true)
}

// denyPods takes the right to list Pods, which another test may have granted, and waits until that is effective.
func (d *deployed) denyPods() {
	d.t.Helper()
	if err := d.client.RbacV1().ClusterRoleBindings().Delete(d.ctx, "csi-attach-hub-pods", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		d.t.Fatal(err)
	}
	client := d.clientWith(d.token)
	poll(d.ctx, d.t, "no right to list Pods", func() bool {
		missing, err := rights.Missing(d.ctx, client.AuthorizationV1(), []rights.Right{{Verb: "list", Resource: "pods"}})
		if err != nil {
			d.t.Fatal(err)
		}
		return len(missing) == 1
	})
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
