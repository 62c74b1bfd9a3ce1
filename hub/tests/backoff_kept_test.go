package tests

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// changeCSIDriver changes the driver's CSIDriver object.
func (v *virtual) changeCSIDriver(change func(d *storagev1.CSIDriver)) {
	v.t.Helper()
	d, err := v.kube.StorageV1().CSIDrivers().Get(v.t.Context(), virtualDriver, metav1.GetOptions{})
	if err == nil {
		change(d)
		_, err = v.kube.StorageV1().CSIDrivers().Update(v.t.Context(), d, metav1.UpdateOptions{})
	}
	if err != nil {
		v.t.Fatal(err)
	}
}

func TestOnlyWhatMayHelpEndsTheBackoffOfAnAttach(t *testing.T) {
	for name, c := range map[string]struct {
		every  time.Duration
		happen func(v *virtual, driver *endpoint, i int)
		ends   bool
	}{
		"nothing": {time.Minute, func(*virtual, *endpoint, int) {}, false},
		// As operators do that fight each other.
		"changes of the CSIDriver object": {5 * time.Second, func(v *virtual, _ *endpoint, i int) {
			v.changeCSIDriver(func(d *storagev1.CSIDriver) {
				d.Annotations = map[string]string{"operator.example.com/hash": fmt.Sprint(i)}
			})
		}, false},
		"a CSIDriver object that is created again": {5 * time.Second, func(v *virtual, _ *endpoint, i int) {
			if i%2 == 0 {
				v.delete(testbed.CSIDriver{Name: virtualDriver})
			} else {
				v.create(testbed.CSIDriver{Name: virtualDriver})
			}
		}, false},
		// As under load.
		"a Probe that says not ready now and then": {4 * time.Second, func(v *virtual, _ *endpoint, i int) {
			notReady := i%2 == 0
			v.turn(fakecsi.Knobs{NotReady: &notReady})
		}, false},
		"a new connection": {20 * time.Second, func(_ *virtual, driver *endpoint, _ int) {
			driver.session.Load().Close()
		}, true},
		"attachRequired": {20 * time.Second, func(v *virtual, _ *endpoint, _ int) {
			v.changeCSIDriver(func(d *storagev1.CSIDriver) { d.Spec.AttachRequired = new(bool) })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval, v.driver.Probe.Interval = 0, time.Second
				v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
				driver := v.endpoint()
				v.create(testbed.CSIDriver{Name: virtualDriver})
				v.register("n", "id-n")
				v.volume("v")
				v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Code: codes.Internal}}})
				v.start()
				v.create(v.attachment("v", "n"))
				v.pass(time.Minute)
				calls := func() int { return v.published() + v.unpublishes() } // attachRequired: false detaches what may be attached
				before, began := calls(), time.Now()
				for i := 0; time.Since(began) < 10*time.Minute; i++ {
					c.happen(v, driver, i)
					v.pass(c.every)
				}
				if n := calls() - before; (n > 0) != c.ends {
					t.Errorf("%d calls in 10 minutes for an attach that fails and waits for an hour, want the end of its backoff: %v", n, c.ends)
				}
			})
		})
	}
}
