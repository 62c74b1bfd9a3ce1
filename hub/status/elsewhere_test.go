package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

const publishedThere = "rpc error: code = FailedPrecondition desc = volume vol-1 is published to another node"

// refusedAttachment is a VolumeAttachment that the driver refuses because the volume is elsewhere.
func refusedAttachment(now time.Time) Attachment {
	return Attachment{Name: "csi-1", Driver: "a.example.com", Node: "worker-1", PersistentVolume: "pv-1", VolumeHandle: "vol-1", State: Failing, Operation: Attach,
		Since: now.Add(-time.Hour), Tries: 6, LastError: publishedThere, LastErrorTime: now.Add(-time.Minute)}
}

// listedAt is the volume of refusedAttachment where the driver lists it.
func listedAt(now time.Time, nodeID, node string) DanglingPublication {
	return DanglingPublication{VolumeHandle: "vol-1", NodeID: nodeID, Node: node, PersistentVolume: "pv-1", Since: now.Add(-12 * time.Second), Listed: true, ReportOnly: true}
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
	var commands []string
	for _, n := range elements(t, body) {
		if attribute(n, "class") == "commands" {
			commands = append(commands, n.FirstChild.Data)
		}
	}
	if want := strings.Join(diagnosis.DetachCommands("a.example.com", "worker-7", "pv-1"), "\n") + "\n"; !slices.Equal(commands, []string{want}) {
		t.Errorf("the page has the commands %q, want %q", commands, want)
	}
	if text := "is listed at node ID i-7 (node worker-7)"; !strings.Contains(pageText(t, body, "diagnosis"), text) {
		t.Errorf("the page does not have %q", text)
	}
	if strings.Contains(body, "Last error") {
		t.Error("the page says the error twice")
	}
}
