package main

import "testing"

func TestPodsGetTheirVolumesThroughKubeControllerManager(t *testing.T) {
	c := podsCase("tiny", "", managerTuned)
	c.alone, c.Nodes, c.Each = true, 2, 2
	got := measureTiny(t, c)
	for _, f := range []Figure{PodRate, PodP50, PodRequestP99, PodDispatchP99, PodPublishP99, PodReportP99, SteadyPodP50, PodDetachRate} {
		if got[f] <= 0 {
			t.Errorf("%s is %v, want more than 0", f, got[f])
		}
	}
	if got[ManagerShare] <= 0 || got[ManagerShare] >= 1 {
		t.Errorf("share of kube-controller-manager %v, want one between 0 and 1", got[ManagerShare])
	}
}
