package volume_test

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// attachment is a VolumeAttachment of the PersistentVolume "pv of <name>".
func attachment(name string, uid types.UID, edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	pv := "pv of " + name
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Finalizers: []string{"f"}},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: "node", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}
	for _, edit := range edits {
		edit(va)
	}
	return va
}

// publish has a claim publish its volume.
func publish(table *volume.Table, c *volume.Claim, r attach.Record) {
	p, e := volume.Pass{Operation: attach.Attaching, Target: r.Target, Record: r, Calls: true}, volume.Effect{Kind: volume.Publish, Target: r.Target}
	table.Start(c, p, e)
	table.Apply(c, &p, e, volume.Outcome{Result: volume.Succeeded})
}
