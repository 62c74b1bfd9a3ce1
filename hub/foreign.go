package hub

import (
	"fmt"
	"sync"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// intruder is who else writes the VolumeAttachments of a driver that is served here: an
// attacher that does not care about the lease, such as a sidecar without leader election.
type intruder struct {
	mu   sync.Mutex
	last attach.Write
	name string // of the VolumeAttachment that it wrote; empty: there was none
}

func (i *intruder) saw(w attach.Write, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last, i.name = w, name
}

// get returns the last write of another attacher, and the VolumeAttachment; "" for none.
func (i *intruder) get() (attach.Write, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last, i.name
}

// checkWriter looks whether a change of a VolumeAttachment was made by another attacher
// since this process works for the driver.
func (d *driver) checkWriter(before, va *storagev1.VolumeAttachment) {
	if before == nil || before.UID != va.UID || d.isFromBeforeTerm(va) {
		return
	}
	w, foreign := attach.ForeignWrite(before, va, d.finalizer)
	if !foreign {
		return
	}
	d.intruder.saw(w, va.Name)
	d.tally.metrics.ForeignWriter()
	d.events.foreign(va, w)
	action := d.desired.settings().OnForeignWriter
	if d.intruderSaid.due(w.Manager, w.Time) {
		d.logger.Info("Another attacher writes VolumeAttachments of the driver, which is active here", "manager", w.Manager,
			"volumeAttachment", va.Name, "wrote", w.What, "at", w.Time, "action", action)
	}
	if action == registry.ForeignWriterPause {
		d.halt.set(fmt.Sprintf("another attacher (%s) wrote VolumeAttachment %s: stop it, then change the driver's settings or restart the hub", w.Manager, va.Name))
	}
}
