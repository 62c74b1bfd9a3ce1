package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// The whole way: explain, the API of the hub, the driver on its socket.
func TestExplainPassesOnWhatTheDriverReportsAboutAVolume(t *testing.T) {
	s := newScene(t, "health")
	driver, socket := s.entry("driver")
	_, control := s.startDriver(driver, socket, "--knobs", `{"capabilities": ["PUBLISH_UNPUBLISH_VOLUME", "GET_VOLUME_HEALTH", "CONTROLLER_SERVICE"]}`)
	s.create(testbed.Node{Name: "health-a"}, testbed.CSINode{Node: "health-a", Drivers: map[string]string{driver: "id"}})
	s.volume("health-1", driver, nil)
	s.attach("health-1", driver, "health-a")
	server := s.startVisibleHub()
	s.waitFor("health-1 attached", isAttached("health-1"))
	if err := control.Set(s.ctx, fakecsi.Knobs{VolumeHealth: map[string][]fakecsi.Health{"health-1": {{Status: "INACCESSIBLE", Reason: "PathDown", Message: "no path to the array"}}}}); err != nil {
		t.Fatal(err)
	}
	s.report(func(r explain.Report) bool {
		return r.Result == explain.Attached && len(r.Unknown) == 0 && slices.ContainsFunc(r.Volumes[0].Notes, func(n explain.Finding) bool {
			return n.Verdict == diagnosis.VolumeUnhealthy && strings.Contains(n.Fact, "INACCESSIBLE (PathDown): no path to the array")
		})
	}, "health-1", "--server", server)
}
