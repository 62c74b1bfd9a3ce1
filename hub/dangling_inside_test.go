package hub

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// publishing is a session of a driver that is called to attach.
type publishing struct{ Session }

func (publishing) Info() csiclient.Info {
	return csiclient.Info{Capabilities: csiclient.Capabilities{PublishUnpublish: true, ListPublishedNodes: true}}
}

// A VolumeAttachment was there when the driver was asked, and is gone when it has answered.
func TestVolumeIsKeptWhereItWasAskedForOrWorkedOnWhenTheDriverWasAsked(t *testing.T) {
	d := routed(t)
	d.connectTo(publishing{})
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: routedDriver, NodeID: "id"}}}}
	if err := d.cluster.Put(node, stored(t, guardedVolume())); err != nil {
		t.Fatal(err)
	}
	p := csiclient.Published{"handle": {IDs: []string{"id"}}}
	for name, c := range map[string]struct {
		before []*storagev1.VolumeAttachment
		worked bool
		want   string
	}{
		"nobody":    {nil, false, ""},
		"asked for": {[]*storagev1.VolumeAttachment{routedAttachment(guardedAttachment)}, false, "VolumeAttachment va may ask for it there"},
		"worked on": {nil, true, "other work on the volume has begun there"},
		"asked for not": {[]*storagev1.VolumeAttachment{routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) {
			va.Spec.NodeName = "other"
			va.Annotations[attach.AnnotationNodeID] = "id-2"
		})}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := d.findDangling(t.Context(), p, c.before, func(at attach.Target) bool { return c.worked && at == routedTarget })
			if len(found) != 1 || found[0].Kept() != c.want {
				t.Errorf("found %+v, kept because %q, want %q", found, found[0].Kept(), c.want)
			}
		})
	}
}
