package statustable

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

var now = time.Date(2026, 3, 4, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// hostile is a text of a driver that would change a terminal.
const hostile = "rpc error:\n\x1b[31mno\x1b[2J\u202e such array\r\x07"

// fleet is a hub with every kind of trouble, as three replicas see it, and its VolumeAttachments.
func fleet() (hubclient.View, []status.Attachment) {
	mine := status.Lease{Namespace: "kube-system", Name: "lease", Holder: "hub-0_abc", Mine: true, Since: ago(2 * time.Hour)}
	driver := func(name string, change func(*status.Driver)) status.Driver {
		d := status.Driver{Name: name, State: "Ready", Mode: "active", Up: true, Since: ago(2 * time.Hour), Endpoint: "unix:///csi/" + name + "/csi.sock",
			Lease: mine, Workers: 20, Settings: status.Settings{Timeout: metav1.Duration{Duration: 2 * time.Minute}}}
		if change != nil {
			change(&d)
		}
		return d
	}
	attachment := func(driver string, i int, s status.AttachmentState, change func(*status.Attachment)) status.Attachment {
		name := fmt.Sprintf("%s-%d", driver[:3], i)
		a := status.Attachment{Name: "csi-" + name, Driver: driver, Node: fmt.Sprintf("node-%d", i%2), PersistentVolume: "pv-" + name, VolumeHandle: "vol-" + name,
			Claim: "shop/data-" + name, Pods: []string{"shop/" + name}, State: s, Operation: status.Attach, Since: ago(30*time.Minute - time.Duration(i)*time.Second)}
		change(&a)
		return a
	}
	drivers := []status.Driver{
		driver("fine.example.com", nil),
		driver("lost.example.com", func(d *status.Driver) {
			d.State, d.Up, d.Reason, d.DownSince = "Lost", false, "connect: connection refused", ago(8*time.Minute+12*time.Second)
			d.Lanes = []status.Lane{{Operation: status.Attach, Queued: 3, OldestSince: ago(8 * time.Minute)}}
		}),
		driver("hang.example.com", func(d *status.Driver) {
			d.UnansweredSince, d.Busy = ago(16*time.Minute), 10
			d.Lanes = []status.Lane{{Operation: status.Attach, Running: 10, Stuck: 1, StuckSince: ago(16 * time.Minute), OldestCall: status.Call{Method: "ControllerPublishVolume", Since: ago(16 * time.Minute)}}}
		}),
		driver("fail.example.com", func(d *status.Driver) {
			d.Lanes = []status.Lane{{Operation: status.Attach, Delayed: 12, Failing: 12, FailingSince: ago(30 * time.Minute), Queued: 4, Running: 2, OldestSince: ago(30 * time.Minute)}, {Operation: status.Detach, Queued: 1, Running: 1}}
			d.Failures = []status.Failure{{Time: now, Text: hostile}}
			d.Dangling = []status.DanglingPublication{{VolumeHandle: "vol-1", NodeID: "i-1", Node: "node-1", Tries: 3, LastError: "no\x00such node", Since: ago(time.Hour)}, {VolumeHandle: "vol-2", NodeID: "i-2", Since: ago(time.Minute)}}
			d.DanglingCount = 5
		}),
		driver("paused.example.com", func(d *status.Driver) {
			d.State, d.Mode, d.Lease = "Paused", "paused", status.Lease{}
		}),
		driver("sidecar.example.com", func(d *status.Driver) {
			d.State, d.Lease = "WaitingForLease", status.Lease{Namespace: "kube-system", Name: "lease", Holder: "sidecar_7"}
		}),
	}
	replicas := []string{"hub-0_abc", "hub-1_def"}
	config := status.Config{Hash: "1", Files: []status.ConfigFile{{Path: "drivers.yaml", Rejected: "drivers.yaml rejected; the previous configuration stays active"}},
		Errors: []string{"drivers.yaml:3: no"}, Warnings: []string{"drivers.yaml:9: hm"},
		Conflicts: []status.Conflict{{Driver: "fine.example.com", Loser: "/csi/b.sock", Winner: "drivers.yaml:5", Reason: "is there twice"}}}
	first := status.Overview{Identity: "hub-0_abc", Config: config, Replicas: replicas, Unserved: map[string]int{"stray.example.com": 3, "other.example.com": 1}}
	second := first
	second.Identity, second.Config.Hash = "hub-1_def", "2"
	onSecond := []status.Driver{driver("fine.example.com", func(d *status.Driver) {
		d.State, d.Up, d.Lease.Mine, d.Reason, d.DownSince = "Connecting", false, false, "connect: no such file or directory", ago(time.Hour)
	})}
	for _, seen := range [][]status.Driver{drivers, onSecond} {
		for i := range seen {
			seen[i].Health = status.HealthOfDriver(seen[i], replicas, now)
		}
	}
	v := hubclient.Merge([]hubclient.Replica{
		{Replica: "Pod h/hub-0", Overview: first, Drivers: drivers},
		{Replica: "Pod h/hub-1", Overview: second, Drivers: onSecond},
		{Replica: "Pod h/hub-2", Error: "connection refused"},
	})
	var all []status.Attachment
	add := func(a status.Attachment) {
		in := status.DiagnosisInput{Attachment: a, Replicas: replicas, Now: now}
		if d := v.Driver(a.Driver); d != nil {
			in.Driver = &d.Driver
		}
		a.Health = status.HealthOfAttachment(in)
		all = append(all, a)
	}
	for i := range 12 {
		add(attachment("fail.example.com", i, status.Failing, func(a *status.Attachment) {
			a.Tries, a.NextTry, a.LastErrorTime = i+3, now.Add(40*time.Second), ago(time.Duration(i)*time.Second)
			a.LastError = "rpc error: code = ResourceExhausted desc = no room for " + a.VolumeHandle + "\x1b[31m"
			a.LastCause = diagnosis.Cause{Verdict: diagnosis.BackendError, Code: "ResourceExhausted"}
		}))
	}
	for i := range 3 {
		add(attachment("lost.example.com", i, status.Waiting, func(a *status.Attachment) {
			a.Since = ago(8*time.Minute - time.Duration(i)*time.Second)
			a.Waiting = status.Wait{Kind: status.WaitForDriver, DriverState: "Lost", Reason: "connection refused"}
		}))
	}
	add(attachment("hang.example.com", 1, status.Stuck, func(a *status.Attachment) {
		a.Since, a.Call, a.Pods = ago(16*time.Minute), status.Call{Method: "ControllerPublishVolume", Since: ago(16 * time.Minute), VolumeAttachment: a.Name}, nil
	}))
	add(attachment("hang.example.com", 2, status.Attaching, func(a *status.Attachment) {
		a.Since, a.Call, a.Pods = ago(6*time.Second), status.Call{Method: "ControllerPublishVolume", Since: ago(6 * time.Second), VolumeAttachment: a.Name}, []string{"shop/a", "shop/b", "shop/c"}
	}))
	add(attachment("fine.example.com", 1, status.Attached, func(a *status.Attachment) { a.Operation = "" }))
	add(attachment("stray.example.com", 1, status.Unserved, func(a *status.Attachment) {
		a.Claim, a.Pods = "", nil
		a.Waiting = status.Wait{Kind: status.WaitForConfiguration}
	}))
	return v, all
}

// report is the Report of the fleet.
func report() Report {
	v, all := fleet()
	var trouble []status.Attachment
	for _, a := range all {
		if a.Health.Needs() {
			trouble = append(trouble, a)
		}
	}
	return NewReport(v, trouble, nil, now)
}
