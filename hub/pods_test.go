package hub_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// podBooks knows one Pod for each claim, and keeps books of what it is asked for.
type podBooks struct {
	mu    sync.Mutex
	asked []string // "node namespace/claim"
}

// PodsOf implements hub.PodFinder.
func (b *podBooks) PodsOf(node, namespace, claim string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, node+" "+namespace+"/"+claim)
	return []string{namespace + "/pod-of-" + claim}
}

// since returns what was asked for since the last call, sorted.
func (b *podBooks) since() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	asked := b.asked
	b.asked = nil
	slices.Sort(asked)
	return asked
}

func TestPodsAreLookedUpWhereAnOperationIsDueOrAVolumeAttachmentIsAskedFor(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		books := &podBooks{}
		v.options.Pods = books
		v.register("n", "id-n")
		v.start()
		bound := func(name, driver string) testbed.VolumeAttachment {
			v.create(testbed.PersistentVolume{Name: name, Driver: driver, Claim: "claim-" + name})
			va := v.attachment(name, "n")
			va.Driver = driver
			return va
		}
		v.create(bound("attached", virtualDriver))
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
		v.volume("free") // has no claim
		v.create(bound("waiting", virtualDriver), bound("stray", "stray.example.com"), v.attachment("free", "n"))
		v.pass(time.Minute)
		if asked := books.since(); len(asked) > 0 {
			t.Errorf("the hub asked without a view: %v", asked)
		}

		type shown struct{ Claim, Pod string }
		got := map[string]shown{}
		for _, a := range v.hub.Attachments(status.AttachmentFilter{}) {
			s := shown{Claim: a.Claim}
			if len(a.Pods) == 1 {
				s.Pod = a.Pods[0]
			}
			got[a.Name] = s
		}
		want := map[string]shown{
			"attached-n": {"default/claim-attached", ""},
			"waiting-n":  {"default/claim-waiting", "default/pod-of-claim-waiting"},
			"stray-n":    {"default/claim-stray", "default/pod-of-claim-stray"},
			"free-n":     {},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claims and Pods (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"n default/claim-stray", "n default/claim-waiting"}, books.since()); diff != "" {
			t.Errorf("asked for (-want +got):\n%s", diff)
		}
		v.hub.Attachments(status.AttachmentFilter{States: []status.AttachmentState{status.Attached}})
		if asked := books.since(); len(asked) > 0 {
			t.Errorf("a view of what is attached asked for %v", asked)
		}
		if got := v.seen("attached-n").Pods; !slices.Equal(got, []string{"default/pod-of-claim-attached"}) {
			t.Errorf("an attached VolumeAttachment that is asked for by name has Pods %v", got)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
	})
}

func TestAVolumeAttachmentThatIsNotServedShowsTheOperationThatIsDueAndSinceWhen(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		other := func(name string) testbed.VolumeAttachment {
			return testbed.VolumeAttachment{Name: name, Driver: "stray.example.com", Node: "n", PersistentVolume: name}
		}
		v.create(other("new"), other("gone"), other("done"))
		// What another attacher has done.
		add := func(name, path, value string, subresources ...string) {
			patch := fmt.Sprintf(`[{"op":"add","path":%q,"value":%s}]`, path, value)
			if _, err := v.kube.StorageV1().VolumeAttachments().Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}, subresources...); err != nil {
				t.Fatal(err)
			}
		}
		for name, state := range map[string]string{"gone": `{"attached":true,"detachError":{"message":"busy"}}`, "done": `{"attached":true}`} {
			add(name, "/metadata/finalizers", fmt.Sprintf("[%q]", attach.Finalizer("stray.example.com")))
			add(name, "/status", state, "status")
		}
		v.pass(time.Hour)
		v.delete(other("gone"))
		v.pass(time.Second)
		created, deleted := v.get("new").CreationTimestamp.Time, v.get("gone").DeletionTimestamp.Time
		for name, want := range map[string]status.Attachment{
			"new":  {Operation: status.Attach, Since: created},
			"gone": {Operation: status.Detach, Since: deleted, LastError: "busy"},
			"done": {},
		} {
			a := v.seen(name)
			wait := status.WaitForConfiguration
			if want.Operation == "" { // nothing is due
				wait = ""
			}
			if a.State != status.Unclaimed || a.Waiting.Kind != wait {
				t.Errorf("%s is %s and waits for %q, want it unclaimed and waiting for %q", name, a.State, a.Waiting.Kind, wait)
			}
			if a.Operation != want.Operation || !a.Since.Equal(want.Since) || a.LastError != want.LastError {
				t.Errorf("%s: operation %q since %v, last error %q; want %q since %v, %q", name, a.Operation, a.Since, a.LastError, want.Operation, want.Since, want.LastError)
			}
		}
	})
}
