package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// bound makes a claim, the volume that it is bound to and a Pod with it on a node, all of
// one name, as the controllers of Kubernetes leave them.
func (s *scene) bound(name, driver, node string) {
	s.t.Helper()
	s.volume(name, driver, func(pv *testbed.PersistentVolume) { pv.Claim = name })
	s.claim(name, node)
	claim, err := s.plane.Clientset().CoreV1().PersistentVolumeClaims("default").Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"claimRef":{"uid":%q}}}`, claim.UID)
	if _, err := s.plane.Clientset().CoreV1().PersistentVolumes().Patch(s.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// waysToAsk are those about objects that all have one name.
func waysToAsk(name string) []string {
	return []string{name, "volumeattachment/" + name, "pv/" + name, "pvc/default/" + name, "pod/default/" + name}
}

func TestABoundVolumeIsExplainedTheSameByEveryWayToAsk(t *testing.T) {
	s := newScene(t, "bound")
	driver, socket := s.entry("driver")
	backend := s.startDriver(driver, socket).Backend
	s.create(testbed.Node{Name: "bound-a"}, testbed.CSINode{Node: "bound-a", Drivers: map[string]string{driver: "id"}})
	if err := backend.Set(fakecsi.Knobs{
		Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "bound-failing", Code: codes.PermissionDenied, Message: "full"}},
		Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume, Volume: "bound-leaving"}},
	}); err != nil {
		t.Fatal(err)
	}
	server := s.startVisibleHub()
	for _, name := range []string{"bound-attached", "bound-failing", "bound-leaving"} {
		s.bound(name, driver, "bound-a")
		s.attach(name, driver, "bound-a")
	}
	s.waitFor("bound-attached attached", isAttached("bound-attached"))
	s.waitFor("bound-leaving attached", isAttached("bound-leaving"))
	s.delete(testbed.VolumeAttachment{Name: "bound-leaving"})

	for _, about := range waysToAsk("bound-attached") {
		for _, at := range []string{server, "http://127.0.0.1:1"} {
			out, problems, code := s.ask("explain", about, "--server", at)
			first, _, _ := strings.Cut(out, "\n")
			if code != 0 || !strings.HasSuffix(first, ": attached") || strings.Contains(out, "PROBLEM") {
				t.Errorf("explain %s --server %s: exit code %d, want 0, and attached:\n%s%s", about, at, code, out, problems)
			}
		}
	}
	for name, want := range map[string]diagnosis.Verdict{"bound-failing": diagnosis.BackendError, "bound-leaving": diagnosis.CallInFlight} {
		for _, about := range waysToAsk(name) {
			if _, code := s.explained(server, about, want); code != 1 {
				t.Errorf("explain %s: exit code %d, want 1", about, code)
			}
		}
	}
	if err := backend.Set(fakecsi.Knobs{ReleaseAll: true}); err != nil {
		t.Fatal(err)
	}
}

func TestAClaimThatMayNotBeReadIsNotKnownAndNotMissing(t *testing.T) {
	s := newScene(t, "unread")
	s.bound("unread", "unread-driver", "unread-a")
	s.attach("unread", "unread-driver", "unread-a")
	patch := []byte(`{"status":{"attached":true}}`)
	if _, err := s.plane.Clientset().StorageV1().VolumeAttachments().Patch(s.ctx, "unread", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	rules := slices.Clone(mayExplain)
	rules[0].Resources = slices.DeleteFunc(slices.Clone(rules[0].Resources), func(r string) bool { return r == "persistentvolumeclaims" })
	user := s.kubeconfigFor("unread-user", rules)
	for _, about := range waysToAsk("unread") {
		want := 0
		if strings.HasPrefix(about, "pvc/") || strings.HasPrefix(about, "pod/") {
			want = 3 // which volume it is stands in the claim
		}
		out, problems, code := s.askAs(user, "explain", about, "--server", "http://127.0.0.1:1")
		if said := out + problems; code != want || strings.Contains(said, "/unread: does not exist") || !strings.Contains(said, "persistentvolumeclaims") {
			t.Errorf("explain %s: exit code %d, want %d, and that claims may not be read:\n%s%s", about, code, want, out, problems)
		}
	}
}
