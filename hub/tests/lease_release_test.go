package tests

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// leaseHolder returns who holds the driver's lease, "" if nobody does.
func (v *virtual) leaseHolder() string {
	v.t.Helper()
	l, err := v.kube.CoordinationV1().Leases("hub").Get(v.t.Context(), registry.LeaseName(virtualDriver), metav1.GetOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	return *l.Spec.HolderIdentity
}

// The next holder would attach the volume elsewhere while the driver still attaches it for this one.
func TestLeaseIsReleasedOnlyWhenTheCallsInFlightHaveEnded(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.register("n", "id-n")
		v.volume("v")
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
		stop := v.start()
		v.pass(time.Minute)
		v.create(v.attachment("v", "n"))
		v.pass(time.Second)
		go stop()
		v.pass(5 * time.Second) // half of the grace
		if holder := v.leaseHolder(); holder != "hub" || v.backend.Books().Methods[fakecsi.ControllerPublishVolume].Begun != 1 {
			t.Errorf("the lease is held by %q while a call is in flight: %+v", holder, v.backend.Books().Methods)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
		v.pass(5 * time.Second)
		if holder := v.leaseHolder(); holder != "" {
			t.Errorf("the lease is held by %q when all work has ended", holder)
		}
	})
}
