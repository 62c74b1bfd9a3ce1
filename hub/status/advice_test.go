package status

import (
	"strings"
	"testing"
	"time"
)

func TestAdviceSaysWhereItStopsAndWhatToDo(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	served := Driver{Name: "a.example.com", State: "Ready", Up: true, Mode: "active", Source: "drivers.yaml:4", Endpoint: "unix:///csi/a/csi.sock", Workers: 20, Busy: 20,
		Lease: Lease{Name: "external-attacher-leader-a-example-com", Namespace: "hub", Holder: "hub-0", Mine: true}, Settings: Settings{Timeout: Duration(2 * time.Minute), MaxPerNode: 3}}
	wanted := Attachment{Name: "csi-1", Driver: served.Name, Node: "worker-1", PersistentVolume: "pv-1", State: Waiting, Operation: Attach, Since: now.Add(-time.Minute)}
	failing := wanted
	failing.State, failing.Tries, failing.NextTry = Failing, 6, now.Add(40*time.Second)
	replicas := []Replica{{Identity: "hub-0", Self: true}, {Identity: "hub-1"}}

	for name, test := range map[string]struct {
		attachment func(*Attachment)
		driver     func(*Driver) // nil for a driver that is not served
		conflicts  []Conflict
		failing    bool
		stands, do string // parts of what is said
	}{
		"driver not configured": {stands: "No driver of the name a.example.com is configured", do: "drivers.yaml"},
		"driver in conflict": {conflicts: []Conflict{{Driver: "a.example.com", Loser: "CSIDriver a.example.com", Reason: "endpoint not allowed"}},
			stands: "endpoint not allowed", do: "Resolve"},
		"attached": {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Operation = Attached, "" }, stands: "is attached to node worker-1", do: "kubelet"},
		"idle":     {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Operation = Idle, "" }, stands: "Nothing is to be done"},
		"socket missing": {driver: func(d *Driver) {
			d.State, d.Up, d.Reason, d.Since = "Connecting", false, "dial unix /csi/a/csi.sock: connect: no such file or directory", now.Add(-time.Hour)
		}, stands: "Connecting for 1 h", do: "socket unix:///csi/a/csi.sock is missing"},
		"nothing listens": {driver: func(d *Driver) { d.State, d.Up, d.Reason = "Lost", false, "connect: connection refused" }, stands: "connection refused", do: "Nothing listens"},
		"another driver answers": {driver: func(d *Driver) { d.State, d.Up, d.Reason = "NameMismatch", false, "b.example.com answers" }, stands: "b.example.com answers",
			do: "correct the endpoint or the name of the entry (drivers.yaml:4)"},
		"certificate": {driver: func(d *Driver) { d.State, d.Up, d.Reason = "Connecting", false, "x509: certificate has expired" }, stands: "has expired", do: "TLS files"},
		"lease at another replica": {driver: func(d *Driver) {
			d.State, d.Lease = "WaitingForLease", Lease{Name: "l", Namespace: "hub", Holder: "hub-1", Since: now.Add(-time.Hour)}
		}, stands: "lease hub/l is held by hub-1 since 2026-03-04T02:00:00Z (1 h ago): another replica", do: "that replica"},
		"lease at a sidecar": {driver: func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Name: "l", Holder: "csi-attacher-0"} }, stands: "no replica of this hub", do: "end that attacher"},
		"lease at nobody":    {driver: func(d *Driver) { d.State, d.Lease = "WaitingForLease", Lease{Name: "l"} }, stands: "Nobody holds", do: "get, create and update leases"},
		"observed":           {driver: func(d *Driver) { d.Mode, d.Lease.Holder = "observe", "csi-attacher-0" }, stands: "only observes this driver (mode observe): csi-attacher-0", do: "checklist"},
		"paused":             {driver: func(d *Driver) { d.State, d.Mode = "Paused", "paused" }, stands: "mode is paused", do: "active"},
		"paused by the hub": {driver: func(d *Driver) {
			d.State, d.ForeignWriter = "Paused", ForeignWriter{Manager: "csi-attacher", VolumeAttachment: "csi-9"}
		}, stands: "paused", do: "(csi-attacher) wrote VolumeAttachment csi-9"},
		"draining":         {driver: func(d *Driver) { d.State, d.Reason = "Draining", "2 calls in flight" }, stands: "ending its work for the driver: 2 calls in flight."},
		"a call runs":      {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State = Attaching }, stands: "at it now: to attach the volume to node worker-1", do: "up to 2m"},
		"a retry runs":     {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Operation, a.Tries = Detaching, Detach, 2 }, stands: "2nd retry: to detach the volume from node worker-1", do: "2m"},
		"detach elsewhere": {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.SetWaiting(Wait{Kind: WaitForDetach, Node: "worker-7"}) }, stands: "waits for the detach from node worker-7", do: "detached from worker-7 first"},
		"workers busy":     {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.SetWaiting(Wait{Kind: WaitForWorker}) }, stands: "waits for a worker", do: "20 of 20"},
		"node busy":        {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.SetWaiting(Wait{Kind: WaitForNode}) }, stands: "the same node", do: "maxPerNode is 3"},
		"volume busy":      {driver: func(*Driver) {}, attachment: func(a *Attachment) { a.SetWaiting(Wait{Kind: WaitForVolume}) }, stands: "the same volume", do: "parallelMultiNode"},
		"backend refuses":  {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = "rpc error: code = ResourceExhausted desc = full" }, stands: "failed 6 times in a row; 6th retry in 40 s", do: "as many volumes as it can have"},
		"node without driver": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError = `csinode "worker-1" does not contain driver "a.example.com": the node plugin`
		}, stands: "6th retry", do: "Node worker-1 has no such driver"},
		"node gone":      {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `csinode "worker-1" not found: the node is gone` }, stands: "6th retry", do: "Node worker-1 is gone"},
		"secret missing": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `read secret ns/s for the call: secrets "s" not found` }, stands: "failed", do: "controllerPublishSecretRef"},
		"volume gone":    {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `persistentvolume "pv-1" not found` }, stands: "failed", do: "PersistentVolume pv-1 is gone"},
		"volume recreated": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) {
			a.LastError = `the handle of the attached volume is not known: persistentvolume "pv-1" was recreated with another one, "new", after`
		}, stands: "failed", do: "PersistentVolume pv-1 is not the one"},
		"API server refuses": {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.LastError = `write status: volumeattachments "csi-1" is forbidden` }, stands: "failed", do: "ClusterRole"},
		"stuck":              {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.State, a.Since, a.LastError = Stuck, now.Add(-20*time.Minute), "odd" }, stands: "for 20 min now", do: "last error"},
		"retry is due":       {failing: true, driver: func(*Driver) {}, attachment: func(a *Attachment) { a.NextTry, a.LastError = now.Add(-time.Second), "odd" }, stands: "6th retry now", do: "goes on trying"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Case{Attachment: wanted, Replicas: replicas, Conflicts: test.conflicts, Now: now}
			if test.failing {
				c.Attachment = failing
			}
			if test.attachment != nil {
				test.attachment(&c.Attachment)
			}
			if test.driver != nil {
				d := served
				test.driver(&d)
				c.Driver = &d
			}
			got := Advise(c)
			if !strings.Contains(got.Stands, test.stands) || !strings.Contains(strings.Join(got.Do, "\n"), test.do) {
				t.Errorf("got %q\n%q", got.Stands, got.Do)
			}
			if !strings.HasSuffix(got.Stands, ".") || strings.HasSuffix(got.Stands, "..") {
				t.Errorf("not a sentence: %q", got.Stands)
			}
			if test.do == "" && len(got.Do) > 0 {
				t.Errorf("there is nothing to do: %q", got.Do)
			}
		})
	}
}

func TestAStoryIsToldInOrder(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	c := Case{Now: now, Attachment: Attachment{Name: "csi-1", Node: "worker-1", PersistentVolume: "pv-1", State: Failing, Operation: Detach, Created: now.Add(-time.Hour), Finalizer: true,
		Since: now.Add(-time.Minute), Tries: 5, NextTry: now.Add(8 * time.Second), LastError: "second"},
		Driver: &Driver{Failures: []Failure{
			{Time: now.Add(-2 * time.Second), Operation: Detach, VolumeAttachment: "csi-1", Text: "second"},
			{Time: now.Add(-5 * time.Second), Operation: Detach, VolumeAttachment: "csi-2", Text: "of another"},
			{Time: now.Add(-9 * time.Second), Operation: Detach, VolumeAttachment: "csi-1", Text: "first"},
		}}}
	var told []string
	for _, s := range story(c) {
		told = append(told, string(s.Kind)+" "+s.What+" "+s.Text)
	}
	want := []string{"done Created", "done The finalizer", "done Deleted", "failed 3 failed tries before", "failed Failed to detach first", "failed Failed to detach second", "now Now: failing for 1 min", "next 5th retry"}
	if len(told) != len(want) {
		t.Fatalf("got %q", told)
	}
	for i, part := range want {
		if !strings.HasPrefix(told[i], part) {
			t.Errorf("step %d is %q, want %q", i, told[i], part)
		}
	}
	// Without a driver that remembers, the object's last error is what there is.
	c.Driver = nil
	if steps := tries(c); len(steps) != 1 || steps[0].Text != "second" || !strings.HasPrefix(steps[0].What, "5 failed tries") {
		t.Errorf("got %v", steps)
	}
}
