package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

func TestVolumesThatWereLeftAttachedAreOnThePagesInTheAPIAndCounted(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com")
	left := DanglingPublication{VolumeHandle: "vol-7", NodeID: "i-7", Node: "worker-7", PersistentVolume: "pv-7", VolumeAttachment: "csi-7",
		Since: time.Now().Add(-time.Hour).UTC().Truncate(time.Second), Tries: 3, LastError: "array <busy>"}
	h.setDriver("a.example.com", func(d *Driver) { d.Dangling, d.DanglingCount = []DanglingPublication{left}, 1200 })
	u := startServer(t, h)
	for path, words := range map[string][]string{
		"/":                      {"1,200 volumes dangling"},
		"/drivers/a.example.com": {"1,200 volumes, the oldest first", "vol-7", "i-7", "worker-7", "pv-7", "array &lt;busy&gt;", "detaches it"},
		"/metrics":               {`attach_hub_dangling_publications{driver="a.example.com"} 1200`},
	} {
		_, _, body := get(t, u+path)
		for _, word := range words {
			if !strings.Contains(body, word) {
				t.Errorf("%s does not have %q", path, word)
			}
		}
	}
	if d := fetch[Driver](t, u+"/api/v1/drivers/a.example.com"); d.DanglingCount != 1200 || len(d.Dangling) != 1 || d.Dangling[0] != left {
		t.Errorf("the API says %+v, %d in all", d.Dangling, d.DanglingCount)
	}
}

// The hub lists them and leaves them alone: the reader must learn that, and what to do.
func TestDanglingVolumesThatAreOnlyReportedHaveTheCommandsThatDetachThem(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com")
	dangling := DanglingPublication{VolumeHandle: "vol-7", NodeID: "i-7", Node: "worker-7", PersistentVolume: "pv-7", Since: time.Now().Add(-time.Hour), Listed: true, ReportOnly: true}
	h.setDriver("a.example.com", func(d *Driver) { d.Dangling, d.DanglingCount = []DanglingPublication{dangling}, 1 })
	u := startServer(t, h)
	_, _, body := get(t, u+"/drivers/a.example.com")
	for _, text := range []string{"only reports it", "only the driver&#39;s list shows it", "Set drift.unexpected to detach"} {
		if !strings.Contains(strings.ReplaceAll(body, "driver's", "driver&#39;s"), text) {
			t.Errorf("the page does not have %q", text)
		}
	}
	var commands []string
	for _, n := range elements(t, body) {
		if attribute(n, "class") == "commands" {
			commands = append(commands, n.FirstChild.Data)
		}
	}
	want := strings.Join(diagnosis.DetachCommands("a.example.com", "worker-7", "pv-7"), "\n") + "\n"
	if !slices.Contains(commands, want) {
		t.Errorf("the page has the commands %q, want %q among them", commands, want)
	}
	if d := fetch[Driver](t, u+"/api/v1/drivers/a.example.com"); d.Health.State != Attention || d.Health.Reasons[0].Verdict != diagnosis.Dangling {
		t.Errorf("the health is %+v", d.Health)
	}
}

func TestVolumesThatTheHubDetachesAreToldFromThoseThatItReports(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	left := DanglingPublication{Since: now.Add(-time.Hour)}
	listed := DanglingPublication{Since: now.Add(-2 * time.Hour), Listed: true}
	reported := listed
	reported.ReportOnly = true
	for name, tt := range map[string]struct {
		dangling []DanglingPublication
		count    int
		want     string
	}{
		"none":                        {nil, 0, ""},
		"known from a call":           {[]DanglingPublication{left, left}, 2, "Dangling 2 volumes dangling, the oldest for 60m: attached without a VolumeAttachment: the hub keeps trying"},
		"listed and being detached":   {[]DanglingPublication{listed}, 1, "Dangling 1 volume dangling for 120m: attached without a VolumeAttachment: the hub keeps trying"},
		"more reported than is shown": {[]DanglingPublication{reported}, 7, "Dangling 7 volumes dangling, the oldest for 120m: attached without a VolumeAttachment: those with commands the hub only reports"},
		"both":                        {[]DanglingPublication{left, reported}, 2, "Dangling 2 volumes dangling, the oldest for 120m: attached without a VolumeAttachment: those with commands the hub only reports"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, r := range HealthOfDriver(Driver{Name: "d", State: "Ready", Up: true, Mode: "active", Lease: Lease{Mine: true}, Dangling: tt.dangling, DanglingCount: tt.count}, nil, now).Reasons {
				_, does, _ := strings.Cut(r.Actions[0], ": ")
				got += string(r.Verdict) + " " + r.Text(now) + ": " + does
			}
			if !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDiagnosisOfADanglingPublicationSaysWhereItIsAndWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		change   func(*DanglingPublication)
		fact, do string
		commands bool
	}{
		"being detached":         {func(u *DanglingPublication) { u.VolumeAttachment = "csi-7" }, "volume vol-7 is or may be attached at node ID i-7 (node worker-7) without a VolumeAttachment", "Wait: the hub detaches it there.", false},
		"listed, being detached": {func(u *DanglingPublication) { u.Listed = true }, "volume vol-7 is listed at node ID i-7 (node worker-7) without a VolumeAttachment", "Wait:", false},
		"reported":               {func(u *DanglingPublication) { u.Listed, u.ReportOnly = true, true }, "is listed at node ID i-7", "Check that nothing on node worker-7 uses the volume", true},
		"reported, node unknown": {func(u *DanglingPublication) { u.Listed, u.ReportOnly, u.Node = true, true, "" }, "is listed at node ID i-7 without", "Detach the volume from node ID i-7 in the storage system.", false},
		"one failed try":         {func(u *DanglingPublication) { u.Tries, u.LastError = 1, "busy" }, "without a VolumeAttachment: 1 try to detach it failed: busy", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			u := DanglingPublication{VolumeHandle: "vol-7", NodeID: "i-7", Node: "worker-7", PersistentVolume: "pv-7"}
			tt.change(&u)
			d := u.Diagnose("a.example.com")
			if d.Verdict != diagnosis.Dangling || !strings.Contains(d.Text(time.Now()), tt.fact) || !strings.Contains(strings.Join(d.Actions, " "), tt.do) || (len(d.Commands) > 0) != tt.commands {
				t.Errorf("got %+v", d)
			}
		})
	}
}
