package statustable

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

func TestVolumesThatAreOnlyReportedSaySo(t *testing.T) {
	since := time.Date(2026, 3, 4, 2, 0, 0, 0, time.UTC)
	left := status.UnownedPublication{VolumeHandle: "vol-1", NodeID: "i-1", Node: "node-1", Since: since, Tries: 1, LastError: "busy"}
	listed := status.UnownedPublication{VolumeHandle: "vol-2", NodeID: "i-2", Node: "node-2", Since: since, Listed: true, ReportOnly: true}
	driver := func(name string, count int, unowned ...status.UnownedPublication) hubclient.Driver {
		return hubclient.Driver{Driver: status.Driver{Name: name, Unowned: unowned, UnownedCount: count}}
	}
	view := hubclient.View{Drivers: []hubclient.Driver{driver("a", 2, left, listed), driver("b", 4, left), driver("c", 7, listed)}}
	text := NewReport(view, nil, nil, now).Text(Style{})
	const want = `
Volumes left attached where no VolumeAttachment asks for them (to be detached, unless they are only reported: csi-attach-hub explain driver/NAME has the commands):
  a: volume vol-1 at node ID i-1 (node node-1) since 2026-03-04T02:00:00Z, tried 1×: busy
  a: volume vol-2 at node ID i-2 (node node-2) since 2026-03-04T02:00:00Z, only reported
  b: volume vol-1 at node ID i-1 (node node-1) since 2026-03-04T02:00:00Z, tried 1×: busy
  b: and 3 more
  c: volume vol-2 at node ID i-2 (node node-2) since 2026-03-04T02:00:00Z, only reported
  c: and 6 more
`
	if !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant in it\n%s", text, want)
	}
}
