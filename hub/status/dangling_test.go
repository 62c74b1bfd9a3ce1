package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

// The hub detaches some, and others it lists and leaves alone: the reader must learn that, and what to do.
func TestDanglingVolumesAreOnThePagesWithTheCommandsThatDetachThemAndCounted(t *testing.T) {
	h := newFakeHub()
	h.engage("a.example.com")
	left := DanglingPublication{VolumeHandle: "vol-7", NodeID: "i-7", Node: "worker-7", PersistentVolume: "pv-7", VolumeAttachment: "csi-7",
		Since: time.Now().Add(-time.Hour), Tries: 3, LastError: "array <busy>"}
	reported := DanglingPublication{VolumeHandle: "vol-8", NodeID: "i-8", Node: "worker-8", PersistentVolume: "pv-8", Since: time.Now(), FromList: true, ReportOnly: true}
	h.setDriver("a.example.com", func(d *Driver) { d.Dangling, d.DanglingCount = []DanglingPublication{left, reported}, 1200 })
	u := startServer(t, h)
	for path, words := range map[string][]string{
		"/": {"1,200 volumes dangling"},
		"/drivers/a.example.com": {"1,200 volumes, the oldest first", "vol-7", "i-7", "worker-7", "pv-7", "array &lt;busy&gt;", "detaches it",
			"only reports it", "only the driver's list shows it", "Set drift.unexpected to detach"},
		"/metrics": {`attach_hub_dangling_publications{driver="a.example.com"} 1200`},
	} {
		_, _, body := get(t, u+path)
		for _, word := range words {
			if !strings.Contains(strings.ReplaceAll(body, "&#39;", "'"), word) {
				t.Errorf("%s does not have %q", path, word)
			}
		}
	}
	_, _, body := get(t, u+"/drivers/a.example.com")
	if want := strings.Join(diagnosis.DetachCommands("a.example.com", "worker-8", "pv-8"), "\n") + "\n"; !slices.Contains(commandsOn(t, body), want) {
		t.Errorf("the page has the commands %q, want %q among them", commandsOn(t, body), want)
	}
}

// commandsOn returns the commands that a page shows.
func commandsOn(t *testing.T, page string) (all []string) {
	t.Helper()
	for _, n := range elements(t, page) {
		if attribute(n, "class") == "commands" {
			all = append(all, n.FirstChild.Data)
		}
	}
	return all
}

func TestVolumesThatTheHubDetachesAreToldFromThoseThatItReports(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	left := DanglingPublication{Since: now.Add(-time.Hour)}
	listed := DanglingPublication{Since: now.Add(-2 * time.Hour), FromList: true}
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
		"listed, being detached": {func(u *DanglingPublication) { u.FromList = true }, "volume vol-7 is listed at node ID i-7 (node worker-7) without a VolumeAttachment", "Wait:", false},
		"reported":               {func(u *DanglingPublication) { u.FromList, u.ReportOnly = true, true }, "is listed at node ID i-7", "Check that nothing on node worker-7 uses the volume", true},
		"reported, node unknown": {func(u *DanglingPublication) { u.FromList, u.ReportOnly, u.Node = true, true, "" }, "is listed at node ID i-7 without", "Detach the volume from node ID i-7 in the storage system.", false},
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

const publishedThere = "rpc error: code = FailedPrecondition desc = volume vol-1 is published to another node"

// refusedAttachment is a VolumeAttachment that the driver refuses because the volume is elsewhere.
func refusedAttachment(now time.Time) Attachment {
	return Attachment{Name: "csi-1", Driver: "a.example.com", Node: "worker-1", PersistentVolume: "pv-1", VolumeHandle: "vol-1", State: Failing, Operation: Attach,
		Since: now.Add(-time.Hour), Tries: 6, LastError: publishedThere, LastErrorTime: now.Add(-time.Minute)}
}

// listedAt is the volume of refusedAttachment where the driver lists it.
func listedAt(now time.Time, nodeID, node string) DanglingPublication {
	return DanglingPublication{VolumeHandle: "vol-1", NodeID: nodeID, Node: node, PersistentVolume: "pv-1", Since: now.Add(-12 * time.Second), FromList: true, ReportOnly: true}
}

func TestAttachThatIsRefusedBecauseOfADanglingVolumeNamesTheNodeAndFreesIt(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	const own = "volume vol-1 is published to another node"
	there := listedAt(now, "i-7", "worker-7")
	detached, kept := there, there
	detached.ReportOnly, kept.LastError = false, "two PersistentVolumes have the volume handle"
	commands := diagnosis.DetachCommands("a.example.com", "worker-7", "pv-1")
	for name, tt := range map[string]struct {
		listed           DanglingPublication
		fact, detail, do string
		commands         []string
	}{
		"reported": {there, "volume vol-1 is listed at node ID i-7 (node worker-7) without a VolumeAttachment for 12s: " + own, own, "detach it with these commands", commands},
		"detached": {detached, "at node ID i-7 (node worker-7)", own, "Wait: the hub detaches it there.", nil},
		"kept":     {kept, "at node ID i-7", "the hub does not detach it because two PersistentVolumes have the volume handle", "detach it with these commands", commands},
		"on a node that this cluster does not have": {listedAt(now, "i-7", ""), "at node ID i-7 without", own, "Detach the volume from node ID i-7 in the storage system.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			other := there
			other.VolumeHandle = "vol-2"
			d := Driver{Dangling: []DanglingPublication{other, listedAt(now, "i-1", "worker-1"), tt.listed}}
			found := DiagnoseWork(DiagnosisInput{Attachment: refusedAttachment(now), Driver: &d, Now: now})
			first := found[0]
			if first.Verdict != diagnosis.Dangling || first.Object != "driver a.example.com" || first.Detail != tt.detail || !strings.Contains(first.Text(now), tt.fact) ||
				!strings.Contains(strings.Join(first.Actions, " "), tt.do) || !slices.Equal(first.Commands, tt.commands) {
				t.Errorf("got %+v", first)
			}
			for _, d := range found[1:] {
				if d.Verdict == diagnosis.BackendError || d.Verdict == diagnosis.Dangling {
					t.Errorf("the error has a second cause: %+v", d)
				}
			}
		})
	}
}

// The volume may be free by now, and the driver down.
func TestErrorOfAnotherKindIsNotPutDownToWhereTheVolumeIs(t *testing.T) {
	now := time.Now()
	a, d := refusedAttachment(now), Driver{Dangling: []DanglingPublication{listedAt(now, "i-7", "worker-7")}}
	a.LastError = "rpc error: code = Unavailable desc = down"
	if found := DiagnoseWork(DiagnosisInput{Attachment: a, Driver: &d, Now: now}); found[0].Verdict != diagnosis.BackendError || found[0].Detail != "down" {
		t.Errorf("got %+v", found)
	}
}

func TestPageOfAnAttachmentSaysWhichNodeHasItsVolume(t *testing.T) {
	now := time.Now()
	h := newFakeHub()
	h.engage("a.example.com")
	h.change(func() {
		h.attachments["csi-1"] = refusedAttachment(now)
		d := h.drivers["a.example.com"]
		d.Dangling = []DanglingPublication{listedAt(now, "i-7", "worker-7")}
		h.drivers["a.example.com"] = d
	})
	_, _, body := get(t, startServer(t, h)+"/attachments/csi-1")
	if got, want := commandsOn(t, body), strings.Join(diagnosis.DetachCommands("a.example.com", "worker-7", "pv-1"), "\n")+"\n"; !slices.Equal(got, []string{want}) {
		t.Errorf("the page has the commands %q, want %q", got, want)
	}
	if text := "is listed at node ID i-7 (node worker-7)"; !strings.Contains(pageText(t, body, "diagnosis"), text) {
		t.Errorf("the page does not have %q", text)
	}
	if strings.Contains(body, "Last error") {
		t.Error("the page says the error twice")
	}
}
