package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
)

// left has the driver say that a volume was left attached at the node ID id-0.
func (w *world) left(handle, pv string) {
	w.served.Dangling = append(w.served.Dangling, status.DanglingPublication{VolumeHandle: handle, NodeID: "id-0", Node: "node-0", PersistentVolume: pv,
		VolumeAttachment: "csi-0", Since: time.Now().Add(-time.Hour), Tries: 3, LastError: "rpc error: code = Internal desc = array busy"})
}

func TestVolumeThatWasLeftAttachedIsSaidToBe(t *testing.T) {
	for name, change := range map[string]func(*world){
		"asked for elsewhere": func(w *world) { w.left("vol-1", "pv-1") },
		"attached elsewhere":  func(w *world) { attached(w); w.left("vol-1", "pv-1") },
		"being detached":      func(w *world) { leaving(w); w.left("vol-1", "") },
		"not wanted":          func(w *world) { w.va, w.pod, w.seen = nil, nil, nil; w.left("vol-1", "pv-1") },
		"on two nodes": func(w *world) {
			w.more = append(w.more, attachmentOf("csi-2", "pv-1", "node-2"))
			w.left("vol-1", "pv-1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			change(w)
			report, err := w.asked(t, "pv/pv-1")
			if err != nil {
				t.Fatal(err)
			}
			var notes []diagnosis.Diagnosis
			for _, v := range report.Volumes {
				for _, n := range v.Notes {
					if n.Verdict == diagnosis.Dangling {
						notes = append(notes, n)
					}
				}
			}
			if len(notes) != 1 {
				t.Fatalf("%d notes, want one:\n%s", len(notes), report.Text(statustable.Style{}, true))
			}
			const fact = "volume vol-1 is or may be attached at node ID id-0 (node node-0) without a VolumeAttachment for 60m: 3 tries in a row to detach it failed: "
			if got := notes[0]; !strings.HasPrefix(got.Text(time.Now()), fact) || !strings.HasSuffix(got.Text(time.Now()), "rpc error: code = Internal desc = array busy") {
				t.Errorf("noted %q", got.Text(time.Now()))
			}
		})
	}
}

// A PersistentVolume is made anew with the name of one that was left attached.
func TestVolumeOfTheSameNameThatWasLeftAttachedIsAnother(t *testing.T) {
	w := newWorld()
	w.left("vol-0", "pv-1")
	report, err := w.asked(t, "pv/pv-1")
	if err != nil || strings.Contains(report.Text(statustable.Style{}, true), "id-0") {
		t.Errorf("%v\n%s", err, report.Text(statustable.Style{}, true))
	}
}

func TestObjectThatIsGoneIsNotSaidToBeDetachedIfItsVolumeWasLeftAttached(t *testing.T) {
	for _, question := range []string{"csi-0", "pv/pv-0"} {
		w := newWorld()
		w.left("vol-0", "pv-0")
		report, err := w.asked(t, question)
		if err != nil || report.Result != explain.NotFound || report.Stop == nil {
			t.Fatalf("%s: %v\n%s", question, err, report.Text(statustable.Style{}, true))
		}
		if text := report.Text(statustable.Style{}, true); !strings.Contains(text, "volume vol-0 is or may be attached at node ID id-0") || strings.Contains(text, "was detached") {
			t.Errorf("%s:\n%s", question, text)
		}
	}
	w := newWorld()
	w.left("vol-0", "") // of an inline volume
	if report, err := w.asked(t, "pv/pv-9"); err != nil || strings.Contains(report.Text(statustable.Style{}, true), "vol-0") {
		t.Errorf("%v\n%s", err, report.Text(statustable.Style{}, true))
	}
}

// dangles has the driver list a volume at the node ID id-0, which the hub only reports.
func (w *world) dangles(handle, pv string) {
	w.served.DanglingCount++
	w.served.Dangling = append(w.served.Dangling, status.DanglingPublication{VolumeHandle: handle, NodeID: "id-0", Node: "node-0", PersistentVolume: pv,
		Since: time.Now().Add(-time.Hour), FromList: true, ReportOnly: true})
}

// commandLines are the commands that detach a volume from node-0, as the report shows them.
func commandLines(pv string) string {
	return "            " + strings.Join(diagnosis.DetachCommands(driverName, "node-0", pv), "\n            ") + "\n"
}

func TestAttachThatADanglingVolumeBlocksHasOneCauseWithItsCommands(t *testing.T) {
	w := newWorld()
	w.dangles("vol-1", "pv-1")
	w.seen.State, w.seen.Tries, w.seen.LastError = status.Failing, 4, "rpc error: code = FailedPrecondition desc = published to another node"
	w.seen.VolumeHandle = "vol-1"
	for _, question := range []string{"csi-1", "pv/pv-1", "pod/default/web", "pvc/default/data"} {
		report, err := w.asked(t, question)
		if err != nil {
			t.Fatal(err)
		}
		stop, text := report.Volumes[0].Stop, report.Text(statustable.Style{}, true)
		if stop == nil || stop.Verdict != diagnosis.Dangling || !strings.Contains(stop.Text(time.Now()), "volume vol-1 is listed at node ID id-0 (node node-0) without a VolumeAttachment") {
			t.Fatalf("%s: got\n%s", question, text)
		}
		if strings.Count(text, commandLines("pv-1")) != 1 || strings.Count(text, "is listed at") != 1 || !strings.HasSuffix(stop.Text(time.Now()), ": published to another node") || strings.Contains(text, "answered FailedPrecondition") {
			t.Errorf("%s: the cause is said twice, or its commands are not:\n%s", question, text)
		}
	}
}

func TestDriverNamesSomeDanglingVolumesAndCountsAll(t *testing.T) {
	w := newWorld()
	for range 8 {
		w.dangles("vol-1", "pv-1")
	}
	report, err := w.asked(t, "driver/"+driverName)
	if text := report.Text(statustable.Style{}, true); err != nil || strings.Count(text, "volume vol-1 is listed at") != 5 || !strings.Contains(text, "PROBLEM  8 volumes dangling, the oldest for 60m") {
		t.Errorf("%v\n%s", err, text)
	}
}
