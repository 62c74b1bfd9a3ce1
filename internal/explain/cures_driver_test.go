package explain_test

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// driverCures are those of a driver that does not answer.
var driverCures = []cure{
	{
		name: "driver gone",
		breaks: func(s *cureScene) {
			s.workload.change(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(0)) })
		},
		verdict: diagnosis.DriverStopped, object: "Deployment {name}/csi-controller", words: []string{"0 replicas", "driver {name}"},
	},
	{
		name:    "hanging driver",
		prepare: func(s *cureScene) { s.entry = []string{"stuckAfter: 1s", "timeout: 2s"} },
		breaks: func(s *cureScene) {
			s.must(s.driver.Backend.Set(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}))
		},
		verdict: diagnosis.CallUnanswered, words: []string{"ControllerPublishVolume unanswered"},
		cured: func(s *cureScene) {
			s.waitAttached(s.name)
			if n := s.workload.started("csi-driver"); n != 2 {
				s.t.Errorf("the driver was started %d times, want 2", n)
			}
		},
	},
}
