package tests

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

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
			if a.State != status.Unserved || a.Waiting.Kind != wait {
				t.Errorf("%s is %s and waits for %q, want it unserved and waiting for %q", name, a.State, a.Waiting.Kind, wait)
			}
			if a.Operation != want.Operation || !a.Since.Equal(want.Since) || a.LastError != want.LastError {
				t.Errorf("%s: operation %q since %v, last error %q; want %q since %v, %q", name, a.Operation, a.Since, a.LastError, want.Operation, want.Since, want.LastError)
			}
		}
	})
}
