package hub_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakekube"
)

func TestTermThatCannotBeginIsNotSaidToBeReady(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		refuse := false
		v.api.Intercept(func(r fakekube.Request) int {
			if refuse && r.Verb == "list" && r.Resource == "volumeattachments" {
				return http.StatusForbidden
			}
			return 0
		})
		v.pass(100 * time.Millisecond)
		refuse = true
		v.create(v.attachment("v", "n"))
		v.pass(time.Hour)
		d := v.hub.Drivers()[0]
		if !v.get("v-n").Status.Attached && d.State == "Ready" {
			t.Error("nothing is done for an hour, and the driver is said to be ready")
		}
		refuse = false
		v.pass(time.Minute)
		if d := v.hub.Drivers()[0]; !v.get("v-n").Status.Attached || d.State != "Ready" {
			t.Errorf("the API server answers again, and the driver is %s: %s", d.State, d.Reason)
		}
	})
}
