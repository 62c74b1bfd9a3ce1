package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

func TestDiagnosisSaysWhereItStopsAndWhatToDo(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	served := Driver{Name: "a.example.com", State: "Ready", Up: true, Mode: "active", Source: "drivers.yaml:4", Endpoint: "unix:///csi/a/csi.sock", Workers: 20, Busy: 20,
		Lease: Lease{Name: "external-attacher-leader-a-example-com", Namespace: "hub", Holder: "hub-0", Mine: true}, Settings: Settings{Timeout: metav1.Duration{Duration: 2 * time.Minute}, MaxPerNode: 3}}
	wanted := Attachment{Name: "csi-1", Driver: served.Name, Node: "worker-1", PersistentVolume: "pv-1", State: Waiting, Operation: Attach, Since: now.Add(-time.Minute)}
	failing := wanted
	failing.State, failing.Tries, failing.NextTry = Failing, 6, now.Add(40*time.Second)
	replicas := []string{"hub-0", "hub-1"}

	for name, test := range map[string]struct {
		attachment  func(*Attachment)
		driver      func(*Driver) // nil for a driver that is not served
		conflicts   []Conflict
		failing     bool
		summary, do string // parts of what is said
	}{
		"driver not configured": {summary: "csi-attach-hub: does not serve driver a.example.com: it is not in the configuration", do: "drivers.yaml"},
		"driver in conflict": {conflicts: []Conflict{{Driver: "a.example.com", Loser: "CSIDriver a.example.com", Reason: "endpoint not allowed"}},
			summary: "endpoint not allowed", do: "Resolve"},
		"attached": {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Operation = Attached, "" }, summary: "is attached to node worker-1", do: "kubelet"},
		"idle":     {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Operation = Idle, "" }, summary: "no operation is due"},
		"attachRequired became false": {driver: func(d *Driver) { d.NoAttach = true }, attachment: func(a *Attachment) { a.State, a.Operation = Idle, "" },
			summary: "not attached: its CSIDriver has attachRequired: false", do: "explain driver/a.example.com"},
		"socket missing": {driver: func(d *Driver) {
			d.State, d.Up, d.Reason, d.Since = "Connecting", false, "dial unix /csi/a/csi.sock: connect: no such file or directory", now.Add(-time.Hour)
		}, summary: "driver a.example.com: cannot be called at unix:///csi/a/csi.sock for 60m: dial unix", do: "creates the socket unix:///csi/a/csi.sock"},
		"nothing listens": {driver: func(d *Driver) { d.State, d.Up, d.Reason = "Lost", false, "connect: connection refused" }, summary: "connection refused", do: "nothing listens"},
		"nothing listens, and no replica holds the lease": {driver: func(d *Driver) {
			d.State, d.Up, d.Reason, d.Lease = "Lost", false, "connect: connection refused", Lease{Name: "l", Namespace: "hub"}
		}, summary: "connection refused; its lease has no holder.", do: "takes the lease when it is free and the driver can be called"},
		"nothing listens, and another replica holds the lease": {driver: func(d *Driver) {
			d.State, d.Up, d.Reason, d.Lease = "Lost", false, "connect: connection refused", Lease{Name: "l", Holder: "hub-1"}
		}, summary: "connection refused.", do: "the hub reconnects and resumes at once"},
		"wrong endpoint, and a sidecar holds the lease": {driver: func(d *Driver) {
			d.State, d.Up, d.Reason, d.Lease = "Connecting", false, "connect: connection refused", Lease{Name: "l", Holder: "csi-attacher-0"}
		}, summary: "connection refused; its lease is held by csi-attacher-0.", do: "takes the lease when it is free and the driver can be called"},
		"wrong endpoint, and a sidecar let the lease expire": {driver: func(d *Driver) {
			d.State, d.Up, d.Reason, d.Lease = "Connecting", false, "connect: connection refused", Lease{Name: "l", LastHolder: "csi-attacher-0"}
		}, summary: "connection refused; its lease has expired, last held by csi-attacher-0.", do: "takes the lease when it is free and the driver can be called"},
		"wrong endpoint in mode observe": {driver: func(d *Driver) {
			d.State, d.Up, d.Reason, d.Mode, d.Lease = "Connecting", false, "connect: connection refused", "observe", Lease{Name: "l", Holder: "csi-attacher-0"}
		}, summary: "connection refused.", do: "the hub reconnects"},
		"another driver answers": {driver: func(d *Driver) { d.State, d.Up, d.Reason = "NameMismatch", false, "b.example.com answers" }, summary: "b.example.com answers",
			do: "Correct the endpoint or the name of the entry (drivers.yaml:4)"},
		"certificate": {driver: func(d *Driver) { d.State, d.Up, d.Reason = "Connecting", false, "x509: certificate has expired" }, summary: "has expired", do: "TLS files"},
		"lease at another replica": {driver: func(d *Driver) {
			d.State, d.Lease = "WaitingForLease", Lease{Name: "l", Namespace: "hub", Holder: "hub-1", Since: now.Add(-time.Hour)}
		}, summary: "Lease hub/l: held by another replica of the hub (hub-1) for 60m", do: "that replica"},
		"lease at a sidecar": {driver: func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Name: "l", Holder: "csi-attacher-0"} }, summary: "held by another attacher (csi-attacher-0)", do: "End that attacher"},
		"lease at nobody":    {driver: func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Name: "l"} }, summary: "Lease l: has no holder", do: "get, create and update leases"},
		"lease missing": {driver: func(d *Driver) {
			d.State, d.Lease, d.Reason = "WaitingForLease", Lease{Name: "l"}, "the lease cannot be taken: lease ns/l does not exist, and the hub may not create it; create the lease"
		}, summary: "Lease l: cannot be taken", do: "Create the lease"},
		"lease without rights": {driver: func(d *Driver) {
			d.State, d.Lease, d.Reason = "WaitingForLease", Lease{Name: "l"}, `the lease cannot be taken: leases.coordination.k8s.io "l" is forbidden: User "hub" cannot get resource "leases"`
		}, summary: "Lease l: cannot be taken", do: "by name: drivers and leases.extra"},
		"observed":    {driver: func(d *Driver) { d.Mode, d.Lease.Holder = "observe", "csi-attacher-0" }, summary: "only observed: `mode: observe` in drivers.yaml; its lease is held by csi-attacher-0", do: "checklist"},
		"paused":      {driver: func(d *Driver) { d.State, d.Mode = "Paused", "paused" }, summary: "paused: `mode: paused` in drivers.yaml", do: "active"},
		"draining":    {driver: func(d *Driver) { d.State, d.Reason = "Draining", "2 calls in flight" }, summary: "driver a.example.com: draining: 2 calls in flight.", do: "finishes the calls in flight"},
		"a call runs": {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State = Attaching }, summary: "ControllerPublishVolume is running", do: "2m (timeout)"},
		"a call runs for a while": {driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.State, a.Call = Attaching, Call{Method: "ControllerPublishVolume", Since: now.Add(-6 * time.Second)}
		}, summary: "ControllerPublishVolume has been running for 6s", do: "2m (timeout)"},
		"a call hangs, and an older one failed": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.State, a.LastError, a.Call = Stuck, "context canceled", Call{Method: "ControllerPublishVolume", Since: now.Add(-8*time.Minute - 12*time.Second)}
		}, summary: "VolumeAttachment csi-1: ControllerPublishVolume unanswered for 8m12s.\nVolumeAttachment csi-1: the last try failed: context canceled.", do: "log of the driver's controller"},
		"the deadline passed": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError, a.Since = "rpc error: code = DeadlineExceeded desc = context deadline exceeded", now.Add(-20*time.Minute)
		},
			summary: "driver a.example.com: did not answer ControllerPublishVolume within 2m: DeadlineExceeded.", do: "timeout"},
		"the driver's own deadline passed": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError, a.Since = "rpc error: code = DeadlineExceeded desc = context deadline exceeded", now.Add(-9*time.Second)
		},
			summary: "driver a.example.com: answered DeadlineExceeded to ControllerPublishVolume: context deadline exceeded.", do: "log of the driver's controller"},
		"volume gone at a detach": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.Operation, a.LastError = Detach, "rpc error: code = NotFound desc = volume v-1 not found"
		}, summary: "driver a.example.com: answered NotFound to ControllerUnpublishVolume: volume v-1 not found.", do: "remove the finalizer of the attacher"},
		"the driver gave up": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError = "rpc error: code = DeadlineExceeded desc = the cloud did not answer"
		},
			summary: "driver a.example.com: answered DeadlineExceeded to ControllerPublishVolume: the cloud did not answer.", do: "log of the driver's controller"},
		"a retry runs": {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Operation, a.Tries = Detaching, Detach, 2 }, summary: "ControllerUnpublishVolume is running", do: "2m"},
		"detach elsewhere": {driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.Waiting = Wait{Kind: WaitForDetach, Node: "worker-7", VolumeAttachment: "csi-7"}
		}, summary: "waits for the detach from node worker-7", do: "explain csi-7 to see why"},
		"dangling elsewhere": {driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.Waiting = Wait{Kind: WaitForDanglingDetach, NodeID: "i-7"}
		}, summary: "waits for the detach from node ID i-7", do: "explain driver"},
		"workers busy":    {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.Waiting = Wait{Kind: WaitForWorker} }, summary: "waits for a worker", do: "20 of 20"},
		"node busy":       {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.Waiting = Wait{Kind: WaitForNode} }, summary: "the same node", do: "maxPerNode: it is 3"},
		"volume busy":     {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.Waiting = Wait{Kind: WaitForVolume} }, summary: "the same volume", do: "parallelMultiNode"},
		"backend refuses": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = "rpc error: code = ResourceExhausted desc = full" }, summary: "driver a.example.com: answered ResourceExhausted to ControllerPublishVolume: full.\nVolumeAttachment csi-1: 6 tries in a row have failed: the next one is in 40s", do: "as many volumes as it can have"},
		"node without driver": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError = `csinode "worker-1" does not contain driver "a.example.com": the node plugin`
		}, summary: "6 tries in a row have failed: the next one is in 40s", do: "run on node worker-1"},
		"node gone":      {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `csinode "worker-1" not found: the node is gone` }, summary: "6 tries in a row have failed: the next one is in 40s", do: "node worker-1 exists"},
		"secret missing": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `read secret ns/s for the call: secrets "s" not found` }, summary: "6 tries in a row have failed", do: "controllerPublishSecretRef"},
		"backend's words look like the hub's": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError = `rpc error: code = PermissionDenied desc = csinode "worker-1" not found`
		}, summary: "answered PermissionDenied to ControllerPublishVolume", do: "credentials"},
		"volume gone": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `persistentvolume "pv-1" not found` }, summary: "6 tries in a row have failed", do: "Restore PersistentVolume pv-1"},
		"volume recreated": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError = `the handle of the attached volume is not known: persistentvolume "pv-1" was recreated with another one, "new", after`
		}, summary: "6 tries in a row have failed", do: "PersistentVolume pv-1 is not the one"},
		"API server refuses": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `write status: volumeattachments "csi-1" is forbidden` }, summary: "6 tries in a row have failed", do: "ClusterRole"},
		"stuck":              {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Since, a.LastError = Stuck, now.Add(-20*time.Minute), "odd" }, summary: "stuck: no success for 20m.", do: "Fix the problem above"},
	} {
		t.Run(name, func(t *testing.T) {
			in := DiagnosisInput{Attachment: wanted, Replicas: replicas, Conflicts: test.conflicts, Now: now}
			if test.failing {
				in.Attachment = failing
			}
			if test.attachment != nil {
				test.attachment(&in.Attachment)
			}
			if test.driver != nil {
				d := served
				test.driver(&d)
				in.Driver = &d
			}
			summary, do := told(Diagnose(in), now)
			if !strings.Contains(summary, test.summary) || !strings.Contains(do, test.do) {
				t.Errorf("got %q\n%q", summary, do)
			}
			if !strings.HasSuffix(summary, ".") || strings.Contains(summary, "..") {
				t.Errorf("not a sentence: %q", summary)
			}
			if test.do == "" && do != "" {
				t.Errorf("there is nothing to do: %q", do)
			}
		})
	}
}

// told returns what a page shows of diagnoses: where it stands, and what to do.
func told(all []diagnosis.Diagnosis, now time.Time) (summary, do string) {
	var summaries, actions []string
	for _, d := range all {
		summaries, actions = append(summaries, d.Object+": "+diagnosis.Clause(d.Text(now))+"."), append(actions, d.Actions...)
	}
	return strings.Join(summaries, "\n"), strings.Join(actions, "\n")
}

// waits has a wait of each kind with what is known of it, and its text, which other programs
// show too.
var waits = []struct {
	wait Wait
	text string
}{
	{Wait{}, ""},
	{Wait{Kind: WaitForDetach, Node: "worker-7", VolumeAttachment: "csi-7"}, "waits for the detach from node worker-7"},
	{Wait{Kind: WaitForDetach, VolumeAttachment: "csi-7"}, "waits for the detach by csi-7"},
	{Wait{Kind: WaitForDanglingDetach, NodeID: "i-7"}, "waits for the detach from node ID i-7, where the volume is dangling"},
	{Wait{Kind: WaitForVolume}, "waits for other work on the same volume"},
	{Wait{Kind: WaitForNode}, "waits for other calls for the same node"},
	{Wait{Kind: WaitForWorker}, "waits for a worker of the driver"},
	{Wait{Kind: WaitForDriver, DriverState: "Lost", Reason: "connection refused."}, "waits: the driver is Lost: connection refused"},
	{Wait{Kind: WaitForConfiguration}, "waits: no driver of this name is configured here"},
}

func TestEveryWaitHasItsText(t *testing.T) {
	var kinds []WaitKind
	for _, tt := range waits {
		if got := tt.wait.String(); got != tt.text {
			t.Errorf("%+v is told as %q, want %q", tt.wait, got, tt.text)
		}
		kinds = append(kinds, tt.wait.Kind)
	}
	for _, kind := range []WaitKind{WaitForDetach, WaitForDanglingDetach, WaitForVolume, WaitForNode, WaitForWorker, WaitForDriver, WaitForConfiguration} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("this test does not know the kind %q", kind)
		}
	}
}
