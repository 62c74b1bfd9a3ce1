package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

const publishedThere = "rpc error: code = FailedPrecondition desc = volume vol-1 is published to another node"

// reportedThere is what the hub appends to the driver's message.
const reportedThere = `; the driver reports volume "vol-1" on node "worker-7" (node ID "i-7"), where no VolumeAttachment asks for it; not detaching it there because drift.unexpected is report`

// refusedAttachment is a VolumeAttachment that the driver refuses because the volume is elsewhere.
func refusedAttachment(now time.Time, elsewhere ...Elsewhere) Attachment {
	return Attachment{Name: "csi-1", Driver: "a.example.com", Node: "worker-1", PersistentVolume: "pv-1", State: Failing, Operation: Attach,
		Since: now.Add(-time.Hour), Tries: 6, LastError: publishedThere + reportedThere, LastErrorTime: now.Add(-time.Minute), Elsewhere: elsewhere}
}

func TestAttachThatIsRefusedBecauseOfADanglingVolumeNamesTheNodeAndFreesIt(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		elsewhere []Elsewhere
		fact, do  string
		commands  []string
	}{
		"reported": {[]Elsewhere{{NodeID: "i-7", Node: "worker-7", Asked: now.Add(-12 * time.Second)}},
			"has the volume at node ID i-7 (node worker-7), and no VolumeAttachment asks for it there (12s ago): volume vol-1 is published to another node",
			"detach it with these commands", diagnosis.DetachCommands("a.example.com", "worker-7", "pv-1")},
		"being detached": {[]Elsewhere{{NodeID: "i-7", Node: "worker-7", Detaching: true}}, "at node ID i-7 (node worker-7), and no",
			"Wait: the hub detaches the volume from node ID i-7 (node worker-7) first, and attaches it to node worker-1 then.", nil},
		"kept": {[]Elsewhere{{NodeID: "i-7", Node: "worker-7", Kept: "two PersistentVolumes have the volume handle"}}, "at node ID i-7",
			"detach it there in the storage system. The hub does not: two PersistentVolumes have the volume handle.", nil},
		"on a node that this cluster does not have": {[]Elsewhere{{NodeID: "i-7"}}, "at node ID i-7, and no", "Detach the volume from node ID i-7 in the storage system.", nil},
		"on two nodes": {[]Elsewhere{{NodeID: "i-7", Node: "worker-7"}, {NodeID: "i-8", Node: "worker-8"}}, "at node ID i-7 (node worker-7) and at node ID i-8 (node worker-8), and no",
			"nothing on node worker-8 uses", slices.Concat(diagnosis.DetachCommands("a.example.com", "worker-7", "pv-1"), diagnosis.DetachCommands("a.example.com", "worker-8", "pv-1"))},
	} {
		t.Run(name, func(t *testing.T) {
			found := DiagnoseWork(DiagnosisInput{Attachment: refusedAttachment(now, tt.elsewhere...), Now: now})
			first := found[0]
			if first.Detail != "volume vol-1 is published to another node" {
				t.Errorf("the detail is %q, want the driver's own message: the fact says the rest", first.Detail)
			}
			if first.Verdict != diagnosis.PublishedElsewhere || first.Object != "driver a.example.com" || !strings.Contains(first.Text(now), tt.fact) ||
				!strings.Contains(strings.Join(first.Actions, " "), tt.do) || !slices.Equal(first.Commands, tt.commands) {
				t.Errorf("got %+v", first)
			}
			for _, d := range found[1:] {
				if d.Verdict == diagnosis.BackendError {
					t.Errorf("the error has a second cause: %+v", d)
				}
			}
		})
	}
}

// The volume may be free by now, and the driver down.
func TestErrorOfAnotherKindStandsBesideWhereTheVolumeIs(t *testing.T) {
	now := time.Now()
	a := refusedAttachment(now, Elsewhere{NodeID: "i-7", Node: "worker-7"})
	a.LastError = "rpc error: code = Unavailable desc = down"
	found := DiagnoseWork(DiagnosisInput{Attachment: a, Now: now})
	if found[0].Verdict != diagnosis.PublishedElsewhere || found[0].Detail != "" || found[1].Verdict != diagnosis.BackendError || found[1].Detail != "down" {
		t.Errorf("got %+v", found)
	}
}

func TestPageOfAnAttachmentSaysWhichNodeHasItsVolume(t *testing.T) {
	now := time.Now()
	h := newFakeHub()
	h.engage("a.example.com")
	h.change(func() {
		h.attachments["csi-1"] = refusedAttachment(now, Elsewhere{NodeID: "i-7", Node: "worker-7", Asked: now})
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
	for _, text := range []string{"has the volume at node ID i-7 (node worker-7)", "<dt>Published at</dt><dd>worker-7 <code>i-7</code>"} {
		if !strings.Contains(body, text) {
			t.Errorf("the page does not have %q", text)
		}
	}
	if strings.Contains(body, "Last error") {
		t.Error("the page says the error twice")
	}
}
