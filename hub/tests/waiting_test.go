package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// seen returns what the hub shows of a VolumeAttachment.
func (v *virtual) seen(name string) status.Attachment {
	v.t.Helper()
	found := v.hub.Attachments(status.AttachmentFilter{Name: name})
	if len(found) != 1 {
		v.t.Fatalf("the hub shows %d VolumeAttachments named %s", len(found), name)
	}
	return found[0]
}

func TestWhatAVolumeAttachmentWaitsForIsShownByKind(t *testing.T) {
	hangAttach := fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}
	hangDetach := fakecsi.Knobs{ClearFaults: true, Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}}
	// twice asks for two attaches, of which the second is shown.
	twice := func(first, second testbed.VolumeAttachment) func(*virtual) string {
		return func(v *virtual) string {
			v.turn(hangAttach)
			v.start()
			v.create(first)
			v.pass(time.Second)
			v.create(second)
			return second.Name
		}
	}
	attachment := (*virtual)(nil).attachment // needs no world
	for name, tt := range map[string]struct {
		make func(*virtual) (asked string)
		want status.Wait
	}{
		"for a driver that is not configured": {func(v *virtual) string {
			v.start()
			v.create(testbed.VolumeAttachment{Name: "stray", Driver: "stray.example.com", Node: "n", PersistentVolume: "v"})
			return "stray"
		}, status.Wait{Kind: status.WaitForConfiguration}},
		"for a driver that cannot be called": {func(v *virtual) string {
			v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
				return nil, errors.New("nobody listens")
			}
			v.start()
			v.create(v.attachment("v", "n"))
			return "v-n"
		}, status.Wait{Kind: status.WaitForDriver, DriverState: "Connecting", Reason: "nobody listens"}},
		"for a detach from another node": {func(v *virtual) string {
			va := v.attachment("v", "n")
			v.start()
			v.create(va)
			v.pass(time.Second)
			v.turn(hangDetach)
			v.delete(va)
			v.create(v.attachment("v", "n2"))
			return "v-n2"
		}, status.Wait{Kind: status.WaitForDetach, Node: "n", VolumeAttachment: "v-n"}},
		"for a detach of what was left attached": {func(v *virtual) string {
			v.driver.Settings.Timeout = time.Hour
			va := v.attachment("v", "n")
			v.start()
			v.create(va)
			v.pass(time.Second)
			v.refuseToDetach("id-n", codes.Internal)
			v.delete(va)
			v.pass(time.Second)
			v.turn(hangDetach)
			v.stripFinalizers(va.Name)
			v.pass(time.Minute) // the next try
			v.create(v.attachment("v", "n2"))
			return "v-n2"
		}, status.Wait{Kind: status.WaitForDanglingDetach, NodeID: "id-n"}},
		"for other work on the volume": {twice(attachment("v", "n"), attachment("v", "n2")), status.Wait{Kind: status.WaitForVolume}},
		"for other calls for the node": {func(v *virtual) string {
			v.driver.Settings.MaxPerNode = 1
			return twice(attachment("v", "n"), attachment("other", "n"))(v)
		}, status.Wait{Kind: status.WaitForNode}},
		"for a worker": {func(v *virtual) string {
			v.driver.Settings.Workers = 1
			return twice(attachment("v", "n"), attachment("other", "n2"))(v)
		}, status.Wait{Kind: status.WaitForWorker}},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.register("n", "id-n")
				v.register("n2", "id-n2")
				v.volume("v")
				v.volume("other")
				asked := tt.make(v)
				v.pass(time.Second)
				if a := v.seen(asked); a.Waiting != tt.want {
					t.Errorf("%+v, want that it waits for %+v", a, tt.want)
				}
				v.turn(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true})
			})
		})
	}
}
