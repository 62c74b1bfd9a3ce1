package explain

import (
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// reach says why a driver cannot be called: its controller is stopped or not ready.
func (w *walk) reach(f *Finding) {
	c := w.Workload
	switch {
	case c != nil && c.stopped():
		w.note(*f)
		*f = w.finding(diagnosis.Diagnosis{Verdict: diagnosis.DriverStopped, Object: c.ref(), Since: f.Since,
			Fact: fmt.Sprintf("has 0 replicas: the controller of driver %s does not run", w.Driver), Actions: []string{"Scale it up."},
			Commands: diagnosis.Commands(c.kubectl("scale", "--replicas=1"))})
	case c != nil && c.Kind != "DaemonSet" && c.Status.ReadyReplicas == 0: // another endpoint would not help
		f.Next = fmt.Sprintf("Look at %s, the driver's controller: none of its Pods is ready. %s", c.ref(), f.Next)
		f.Commands = nil
	}
}

// restart cures a driver that takes calls and does not answer them.
func (w *walk) restart(f *Finding) {
	if c := w.Workload; c != nil {
		f.Next += " Restart the driver's controller if its log shows nothing."
		f.Commands = diagnosis.Commands(c.kubectl("rollout", "restart"))
	}
}
