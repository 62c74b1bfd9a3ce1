package main

import (
	"fmt"
	"maps"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// versions returns the resource versions of the test's VolumeAttachments.
func (r *rivals) versions() map[string]string {
	versions := map[string]string{}
	for _, va := range r.watcher.List() {
		if va.Spec.Attacher == r.driver {
			versions[va.Name] = va.ResourceVersion
		}
	}
	return versions
}

// begun is how many calls there were that change something.
func (r *rivals) begun() int {
	b := r.backend.Books()
	return b.Methods[fakecsi.ControllerPublishVolume].Begun + b.Methods[fakecsi.ControllerUnpublishVolume].Begun
}

func TestModesChangeUnderLoadWithoutACallOrAWriteOutsideOfActive(t *testing.T) {
	const volumes = 12
	r := newRivals(t, "modes", "mode: active", 20*time.Millisecond)
	r.patient = true // so that what waits is left as it is
	r.knowHub()
	load := r.startChurn(volumes)
	for range 2 {
		r.cycle(load, volumes)
		for _, mode := range []string{"observe", "paused"} {
			state := map[string]string{"observe": "Ready", "paused": "Paused"}[mode]
			r.settle("mode: " + mode)
			d := r.waitShown("in mode "+mode, func(d status.Driver) bool { return d.Mode == mode && d.State == state && d.Lease.Holder == "" })
			if d.Lease.Mine {
				t.Errorf("shown in mode %s: %+v", mode, d)
			}
			r.waitNobody()
			calls := r.begun()
			// Each volume comes to a VolumeAttachment that needs something done.
			r.waitFor("every volume waiting", func(own []*storagev1.VolumeAttachment) bool {
				n := 0
				for _, va := range own {
					if !va.Status.Attached || va.DeletionTimestamp != nil {
						n++
					}
				}
				return n == volumes
			})
			before, cycles := r.versions(), load.Cycles()
			r.checkIdle(volumes)
			if after := r.versions(); !maps.Equal(before, after) {
				t.Errorf("in mode %s VolumeAttachments changed from %v to %v", mode, before, after)
			}
			if got := r.begun(); got != calls || load.Cycles() != cycles {
				t.Errorf("in mode %s there were %d calls and %d cycles", mode, got-calls, load.Cycles()-cycles)
			}
		}
		r.settle("mode: active")
		r.waitHub()
	}
	r.cycle(load, volumes)
	r.checkEnd(load, volumes)
	r.checkSafe()
	r.checkExact()
	r.checkExit(r.hub)
}

// checkIdle checks that the hub knows the VolumeAttachments, and does nothing for them.
func (r *rivals) checkIdle(volumes int) {
	r.t.Helper()
	var known status.AttachmentList
	r.await(func() bool { // its watch may be behind that of the test
		return r.get("/api/v1/attachments?driver="+r.driver, &known) && known.Total == volumes
	}, func() string { return fmt.Sprintf("%d VolumeAttachments shown, want %d", known.Total, volumes) })
	d := r.waitShown("at all", func(status.Driver) bool { return true })
	if work := d.Work(); work.Queued != volumes || work.Running+work.Delayed > 0 {
		r.t.Errorf("want %d volumes that wait, and no work: %+v", volumes, work)
	}
}
