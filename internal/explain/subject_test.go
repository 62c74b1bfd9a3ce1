package explain_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

// volume adds a VolumeAttachment to node-1 of a PersistentVolume of its own, and what the hub knows of it.
func (w *world) volume(name string, since time.Duration, row status.Attachment) {
	va := attachmentOf(name, "pv-"+name, "node-1")
	va.CreationTimestamp = ago(since)
	va.Status.Attached = row.State == status.Attached
	pv := w.pv.DeepCopy()
	pv.Name, pv.Spec.ClaimRef, pv.Spec.CSI.VolumeHandle = "pv-"+name, nil, "vol-"+name
	w.more = append(w.more, va, pv)
	row.Name, row.Driver, row.Node = name, driverName, "node-1"
	if row.Health.State == "" {
		row.Health.State = status.Fine
	}
	w.rows = append(w.rows, row)
}

func (w *world) stuck(name, message string) {
	w.volume(name, time.Hour, status.Attachment{State: status.Stuck, Operation: status.Attach, Tries: 9, Health: status.Health{State: status.Broken},
		LastError: "rpc error: code = Internal desc = " + message})
}

// crowd is a driver with volumes in trouble: two that are stuck for one reason, one for another one, one that waits, and one
// that is attached.
func crowd() *world {
	w := newWorld()
	w.va, w.seen = nil, nil
	w.stuck("csi-a", "no path to vol-csi-a")
	w.stuck("csi-b", "no path to vol-csi-b")
	w.stuck("csi-c", "array is broken")
	row := status.Attachment{State: status.Waiting, Operation: status.Attach, Health: status.Health{State: status.Attention}}
	row.SetWaiting(status.Wait{Kind: status.WaitForWorker})
	w.volume("csi-d", 5*time.Minute, row)
	w.volume("csi-e", time.Hour, status.Attachment{State: status.Attached})
	return w
}

// grouped writes groups in short: verdict and names.
func grouped(r explain.Report) string {
	var all []string
	for _, g := range r.Groups {
		text := string(g.Health)
		if g.Cause != nil {
			text += " " + string(g.Cause.Verdict)
		}
		for _, v := range g.Volumes {
			text += " " + v.VolumeAttachment
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func TestEqualCausesOfManyVolumesAreOneGroup(t *testing.T) {
	const stuck = "broken BackendError csi-a csi-b; broken BackendError csi-c"
	for question, tt := range map[string]struct {
		groups string
		code   int
	}{
		"driver/csi.example.com": {stuck + "; attention Queued csi-d", 0},
		"node/node-1":            {stuck + "; attention Queued csi-d; fine csi-e", 1},
	} {
		w := crowd()
		w.served.Health.State = status.Fine
		r, err := w.asked(t, question)
		if err != nil || grouped(r) != tt.groups || r.Result.ExitCode() != tt.code {
			t.Errorf("%s: %v, exit code %d: %q, want %d: %q\n%s", question, err, r.Result.ExitCode(), grouped(r), tt.code, tt.groups, r.Text())
		}
	}
}

// Without a hub the age of an object is all that says so.
func TestWithoutAHubWhatWaitsForLongIsStuck(t *testing.T) {
	for name, change := range map[string]func(*world){"no hub": noHub, "a hub that does not list": func(w *world) { w.seenErr = errNoHub }} {
		w := crowd()
		change(w)
		r, err := w.asked(t, "node/node-1")
		if err != nil || r.Result.ExitCode() != 1 || !strings.Contains(grouped(r), "csi-a csi-b csi-c") || !strings.Contains(strings.Join(r.Unknown, "\n"), "connection refused") {
			t.Errorf("%s: %v: %s\n%s", name, err, grouped(r), r.Text())
		}
	}
}

func TestMoreVolumesThanCanBeExplainedAreCounted(t *testing.T) {
	w := newWorld()
	w.va, w.seen = nil, nil
	for i := range explain.MostExplained + 3 {
		w.stuck("csi-"+strings.Repeat("x", i+1), "array is broken")
	}
	r, err := w.asked(t, "node/node-1")
	if err != nil || len(r.Groups) != 1 || len(r.Groups[0].Volumes) != explain.MostExplained || r.More != 3 || !strings.Contains(r.Text(), "and 190 more") {
		t.Errorf("%v:\n%s", err, r.Text())
	}
}

func TestDriverThatTheHubDoesNotServeIsExplained(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		want   diagnosis.Verdict
		result string
	}{
		"not configured":                       {func(w *world) { w.lease = nil }, diagnosis.DriverNotConfigured, "attention"},
		"not configured, and a volume stuck":   {func(w *world) { w.lease = nil; w.stuck("csi-a", "x") }, diagnosis.DriverNotConfigured, "broken"},
		"a csi-attacher works for it":          {sidecar, diagnosis.DriverNotConfigured, "standby"},
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
			t.Errorf("%s: %s by %q, want %s by %q:\n%s", name, r.Result, got, tt.result, tt.want, r.Text())
		}
	}
}

func TestCallsInFlightAreNamedWithTheirAgeTheOldestFirst(t *testing.T) {
	w := crowd()
	for i, name := range []string{"csi-q", "csi-r", "csi-s", "csi-t", "csi-u", "csi-v"} {
		w.volume(name, time.Minute, status.Attachment{State: status.Attaching, Operation: status.Attach,
			Call: status.Call{Method: "ControllerPublishVolume", Since: time.Now().Add(-time.Duration(i+1) * 10 * time.Second)}})
	}
	r, err := w.asked(t, "driver/"+driverName)
	const oldest = "ControllerPublishVolume for VolumeAttachment csi-v to node node-1 has been running for "
	if i := slices.IndexFunc(r.Subject.Facts, func(fact string) bool { return strings.HasPrefix(fact, oldest) }); err != nil || i < 0 || !strings.Contains(r.Subject.Facts[i+1], "csi-u") || !slices.Contains(r.Subject.Facts, "more calls in flight: 1") {
		t.Errorf("%v:\n%s", err, r.Text())
	}
}

func TestSecondAttacherWithALeaseElsewhereIsNoted(t *testing.T) {
	w := newWorld()
	w.more = append(w.more, leaseOf("kube-system", "sidecar-7", 2*time.Second))
	r, err := w.asked(t, "driver/"+driverName)
	if err != nil || len(r.Subject.Notes) != 1 || !strings.Contains(r.Text(), "Lease kube-system/"+leaseName+": another attacher works for the driver") || !strings.Contains(r.Text(), "sidecar-7") {
		t.Errorf("%v:\n%s", err, r.Text())
	}
}

func TestNodeIsExplainedWithItsDriversAndLimits(t *testing.T) {
	w := crowd()
	limit := int32(25)
	w.csiNode.Spec.Drivers[0].Allocatable = &storagev1.VolumeNodeResources{Count: &limit}
	w.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "kubelet stopped", LastTransitionTime: ago(time.Hour)}}
	r, err := w.asked(t, "node/node-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"Node node-1: broken for 60m", "Node node-1: not ready for 60m: kubelet stopped", "node ID id-1, limit 25 (allocatable.count)", "explain VOLUMEATTACHMENT", "×1 attached"} {
		if !strings.Contains(r.Text(), words) {
			t.Errorf("%q is not in:\n%s", words, r.Text())
		}
	}
}

func TestNodeWithoutADriverThatIsWantedThereNeedsAttention(t *testing.T) {
	w := newWorld()
	w.csiNode.Spec.Drivers = nil
	w.rows = []status.Attachment{{Name: "csi-1", Driver: driverName, Node: "node-1", State: status.Waiting, Health: status.Health{State: status.Fine}}}
	r, err := w.asked(t, "node/node-1")
	if err != nil || r.Result != "attention" || r.Subject.Reasons[0].Verdict != diagnosis.NodeWithoutDriver || strings.Count(r.Text(), "not registered on the node") != 2 {
		t.Errorf("%v, %s:\n%s", err, r.Result, r.Text())
	}
}
