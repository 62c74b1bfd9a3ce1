package hubclient

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// waitingSource is a replica where a VolumeAttachment waits.
type waitingSource struct {
	source
	attachment status.Attachment
}

func (s waitingSource) Attachments(status.AttachmentFilter) []status.Attachment {
	return []status.Attachment{s.attachment}
}

func TestWhatAVolumeAttachmentWaitsForComesWithItsKind(t *testing.T) {
	want := status.Attachment{Name: "csi-1", State: status.Waiting}
	want.SetWaiting(status.Wait{Kind: status.WaitForDetach, Node: "node-7", VolumeAttachment: "csi-7"})
	port := serve(t, waitingSource{attachment: want})
	h, err := Find(t.Context(), Options{Server: fmt.Sprintf("http://127.0.0.1:%d", port)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	got, err := h.Attachment(t.Context(), h.View(t.Context()).Replicas[0].Replica, "csi-1")
	if err != nil || got == nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
