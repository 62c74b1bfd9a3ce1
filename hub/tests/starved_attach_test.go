package tests

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// While the one hangs (timeout: 2m), the backoff of the other ends (at most a quarter of retry.max: 15s): one of two was always
// due or in flight, and the attach never began.
func TestDetachesThatTimeOutDoNotStarveTheAttachElsewhere(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n, " detaches"), func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval = 0
				v.register("z", "id-z")
				v.volume("v", corev1.ReadWriteOnce)
				nodes := []string{"a", "b", "c"}[:n]
				for _, node := range nodes {
					v.register(node, "id-"+node)
					v.writtenByAnother(v.attachment("v", node), "id-"+node)
				}
				v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume}}})
				v.start()
				v.pass(time.Second)
				for _, node := range nodes {
					v.delete(v.attachment("v", node))
				}
				v.create(v.attachment("v", "z"))
				want := time.Duration(n)*v.driver.Timeout + 10*time.Second
				v.pass(want)
				if v.calls(fakecsi.ControllerPublishVolume, "v", "id-z") == 0 {
					t.Errorf("the driver was not asked to publish the volume on node z within %v: when each detach has had a try", want)
				}
				v.turn(fakecsi.Knobs{ReleaseAll: true})
			})
		})
	}
}
