package explain_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
)

// volume adds a VolumeAttachment to node-1 of a PersistentVolume of its own, and what the hub knows of it.
func (w *world) volume(name string, since time.Duration, row status.Attachment) {
	va := attachmentOf(name, "pv-"+name, "node-1")
	va.CreationTimestamp = ago(since)
	va.Status.Attached = row.State == status.Attached
	pv := w.pv.DeepCopy()
	pv.Name, pv.Spec.ClaimRef, pv.Spec.CSI.VolumeHandle = "pv-"+name, nil, "vol-"+name
	w.more = append(w.more, va, pv)
	row.Name, row.Driver, row.Node, row.PersistentVolume, row.Since = name, driverName, "node-1", pv.Name, va.CreationTimestamp.Time
	in := status.DiagnosisInput{Attachment: row, Now: time.Now()}
	if w.served != nil {
		in.Driver = &w.served.Driver
	}
	row.Health = status.HealthOfAttachment(in)
	w.rows = append(w.rows, row)
}

func (w *world) stuck(name, message string) {
	row := status.Attachment{State: status.Stuck, Operation: status.Attach, Tries: 9, LastError: "rpc error: code = Internal desc = " + message}
	w.volume(name, time.Hour, row)
	w.more[len(w.more)-2].(*storagev1.VolumeAttachment).Status.AttachError = &storagev1.VolumeError{Message: row.LastError, Time: ago(time.Minute)}
}

// troubled is a driver with volumes in trouble: two that are stuck for one reason, one for another one, one that waits, and one
// that is attached.
func troubled() *world {
	w := newWorld()
	w.va, w.seen = nil, nil
	w.stuck("csi-a", "no path to vol-csi-a")
	w.stuck("csi-b", "no path to vol-csi-b")
	w.stuck("csi-c", "array is broken")
	row := status.Attachment{State: status.Waiting, Operation: status.Attach}
	row.Waiting = status.Wait{Kind: status.WaitForWorker}
	w.volume("csi-d", 5*time.Minute, row)
	w.volume("csi-e", time.Hour, status.Attachment{State: status.Attached})
	return w
}

// listed writes VolumeAttachments in short: health, first verdict and name.
func listed(r explain.Report) string {
	var all []string
	for _, a := range r.VolumeAttachments {
		text := string(a.Health.State) + " " + a.Name
		if len(a.Health.Reasons) > 0 {
			text += " " + string(a.Health.Reasons[0].Verdict)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func TestVolumesInTroubleAreListedTheWorstFirst(t *testing.T) {
	const stuck = "broken csi-a BackendError; broken csi-b BackendError; broken csi-c BackendError; attention csi-d Queued"
	for question, tt := range map[string]struct {
		listed string
		code   int
		head   string
	}{
		"driver/csi.example.com": {stuck, 1, "driver csi.example.com: fine; 4 of its volumes in trouble\n"},
		"node/node-1":            {stuck + "; fine csi-e", 1, "Node node-1: fine; 4 of its volumes in trouble\n"}, // the node itself is fine
	} {
		w := troubled()
		w.served.Health.State = status.Fine
		r, err := w.asked(t, question)
		if err != nil || r.Result != "fine" || listed(r) != tt.listed || r.ExitCode() != tt.code || !strings.HasPrefix(r.Text(statustable.Style{}, true), tt.head) {
			t.Errorf("%s: %v, exit code %d: %q, want %d: %q\n%s", question, err, r.ExitCode(), listed(r), tt.code, tt.listed, r.Text(statustable.Style{}, true))
		}
	}
}

func TestWithoutAHubItsListOfVolumesIsNotKnown(t *testing.T) {
	for name, change := range map[string]func(*world){"no hub": noHub, "a hub that does not list": func(w *world) { w.seenErr = errNoHub }} {
		w := troubled()
		change(w)
		r, err := w.asked(t, "node/node-1")
		if err != nil || r.Result != "fine" || r.ExitCode() != 3 || listed(r) != "" || !strings.Contains(strings.Join(r.Unknown, "\n"), "connection refused") {
			t.Errorf("%v: %s: %s, exit code %d\n%s", err, name, listed(r), r.ExitCode(), r.Text(statustable.Style{}, true))
		}
	}
}

func TestMoreVolumesThanATextHasRoomForAreCounted(t *testing.T) {
	w := newWorld()
	w.va, w.seen = nil, nil
	for i := range 23 {
		w.stuck("csi-"+strings.Repeat("x", i+1), "array is broken")
	}
	r, err := w.asked(t, "node/node-1")
	if err != nil || len(r.VolumeAttachments) != 23 || !strings.Contains(r.Text(statustable.Style{}, true), "and 3 more") {
		t.Errorf("%v:\n%s", err, r.Text(statustable.Style{}, true))
	}
}

func TestDriverThatTheHubDoesNotServeIsExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		want   diagnosis.Verdict
		result string
	}{
		"not configured":                     {func(w *world) { w.lease = nil }, diagnosis.DriverNotConfigured, "attention"},
		"not configured, and a volume stuck": {func(w *world) { w.lease = nil; w.stuck("csi-a", "x") }, diagnosis.DriverNotConfigured, "broken"},
		"only its volumes are there": {func(w *world) { w.lease, w.csiDriver, w.unserved = nil, nil, map[string]int{driverName: 1} },
			diagnosis.DriverNotConfigured, "attention"},
		"in a file that was rejected": {func(w *world) { w.lease, w.csiDriver, w.config.Errors = nil, nil, []string{"drivers.yaml:9: a"} },
			diagnosis.ConfigBroken, "attention"},
		"a csi-attacher works for it":          {sidecar, diagnosis.DriverNotConfigured, "attention"},
		"no hub, and its lease expired":        {all(noHub, func(w *world) { w.lease = leaseOf(hubSpace, identity, time.Hour) }), diagnosis.LeaseExpired, "attention"},
		"no hub, and somebody holds its lease": {noHub, "", "unknown"},
	} {
		w := newWorld()
		w.va, w.seen, w.served = nil, nil, nil
		tt.change(w)
		r, err := w.asked(t, "driver/"+driverName)
		if err != nil {
			t.Fatal(err)
		}
		var got diagnosis.Verdict
		if len(r.Subject.Reasons) > 0 {
			got = r.Subject.Reasons[0].Verdict
		}
		if got != tt.want || string(r.Result) != tt.result {
			t.Errorf("%s: %s by %q, want %s by %q:\n%s", name, r.Result, got, tt.result, tt.want, r.Text(statustable.Style{}, true))
		}
	}
}

func TestNodeIsExplainedWithItsDriversAndLimits(t *testing.T) {
	w := troubled()
	limit := int32(25)
	w.csiNode.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
	w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "kubelet stopped", LastTransitionTime: ago(time.Hour)}}
	r, err := w.asked(t, "node/node-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"Node node-1: attention for 60m; 4 of its volumes in trouble\nPROBLEM  not ready for 60m: kubelet stopped", "node ID id-1, limit 25 (allocatable.count)", "explain pv/VOLUME", "pv-csi-e"} {
		if !strings.Contains(r.Text(statustable.Style{}, true), words) {
			t.Errorf("%q is not in:\n%s", words, r.Text(statustable.Style{}, true))
		}
	}
}

func TestNodeWithoutADriverThatIsWantedThereNeedsAttention(t *testing.T) {
	w := newWorld()
	w.csiNode.Spec.Drivers = nil
	w.rows = []status.Attachment{{Name: "csi-1", Driver: driverName, Node: "node-1", State: status.Waiting, Health: status.Health{State: status.Fine}}}
	r, err := w.asked(t, "node/node-1")
	if err != nil || r.Result != "attention" || r.Subject.Reasons[0].Verdict != diagnosis.NodeWithoutDriver || strings.Count(r.Text(statustable.Style{}, true), "not registered on the node") != 1 {
		t.Errorf("%v, %s:\n%s", err, r.Result, r.Text(statustable.Style{}, true))
	}
}

func TestNodeWithAnotherNodeIDThanItsVolumesWereAttachedToNeedsAttention(t *testing.T) {
	w := newWorld()
	for _, name := range []string{"csi-1", "csi-2"} {
		w.rows = append(w.rows, status.Attachment{Name: name, Driver: driverName, Node: "node-1", State: status.Attached,
			Fault: diagnosis.New(diagnosis.NodeIDChanged, "CSINode node-1", "has node ID id-2 now", "", "Delete the Pod.")})
	}
	r := w.mustAsk(t, "node/node-1")
	if text := r.Text(statustable.Style{}, true); r.Result != "attention" || strings.Count(text, "PROBLEM  CSINode node-1: has node ID id-2 now\n") != 1 {
		t.Errorf("%s:\n%s", r.Result, text)
	}
}

func TestFullNodeIsSaidToBeFull(t *testing.T) {
	w := troubled()
	w.served.FullNodes = []status.FullNode{
		{Node: "node-2", Since: time.Now().Add(-time.Hour), Waiting: 1},
		{Node: "node-1", Limit: 25, Attached: 25, Since: time.Now().Add(-8 * time.Minute), Waiting: 4, Line: []string{"csi-1", "csi-2"}}}
	r, err := w.asked(t, "node/node-1")
	if err != nil || r.Result != "attention" || len(r.Subject.Reasons) != 1 || r.Subject.Reasons[0].Verdict != diagnosis.NodeFull {
		t.Errorf("%v, want that node-1 alone is full:\n%s", err, r.Text(statustable.Style{}, true))
	}
	w.served.FullNodes[1].Waiting = 0
	if r, err = w.asked(t, "node/node-1"); err != nil || strings.Contains(r.Text(statustable.Style{}, true), "no more volumes") {
		t.Errorf("%v, want nothing of a full node while nobody waits:\n%s", err, r.Text(statustable.Style{}, true))
	}
}

func TestOnlyObservedDriverThatIsWellGetsNoAdviceAboutItsAttacher(t *testing.T) {
	const look = "Look at the log of the attacher"
	w := newWorld()
	all(sidecar, driverIs(func(d *status.Driver) { d.Mode = "observe" }))(w)
	if text := w.mustAsk(t, "driver/"+driverName).Text(statustable.Style{}, true); strings.Contains(text, look) || !strings.Contains(text, "-> To hand the driver over to the hub") {
		t.Errorf("got\n%s", text)
	}
	if text := w.mustAsk(t, byPV).Text(statustable.Style{}, true); !strings.Contains(text, look) {
		t.Errorf("a volume that waits for it:\n%s", text)
	}
}

func TestUnknownDriverIsNotTakenForAVolumeAttachment(t *testing.T) {
	const want = "driver hang: not found\nPROBLEM  does not exist\n         -> Check the spelling: csi-attach-hub status lists the drivers.\n"
	if text := newWorld().mustAsk(t, "driver/hang").Text(statustable.Style{}, true); text != want {
		t.Errorf("got\n%s", text)
	}
}
