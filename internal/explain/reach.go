package explain

import (
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// reach says why a driver cannot be called: its controller is stopped, or the endpoint is another one.
func (w *walk) reach(f *Finding) {
	if c := w.Workload; c != nil && c.stopped() {
		w.note(*f)
		stopped := w.finding(diagnosis.Diagnosis{Verdict: diagnosis.DriverStopped, Object: c.ref(), Since: f.Since,
			Fact: fmt.Sprintf("has 0 replicas: the controller of driver %s does not run", w.Driver), Actions: []string{"Scale it up."},
			Commands: diagnosis.Commands(c.kubectl("scale", "--replicas=1"))})
		*f = stopped
	}
}

// restart cures a driver that takes calls and does not answer them.
func (w *walk) restart(f *Finding) {
	if c := w.Workload; c != nil {
		f.Next = strings.TrimSpace(f.Next + " Restart the driver's controller if its log shows nothing.")
		f.Commands = diagnosis.Commands(c.kubectl("rollout", "restart"))
	}
}
