package status

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// troubled are the drivers of newTroubledHub, by what is the matter with them.
var troubled = struct{ lost, hanging, slow, full, paused, observed, left, standby, fine string }{
	"csi.vsphere.vmware.com", "rbd.csi.ceph.com", "ebs.csi.aws.com", "disk.csi.azure.com", "nfs.csi.k8s.io", "hostpath.csi.k8s.io",
	"pd.csi.storage.gke.io", "csi-unity.dellemc.com", "a-driver-with-a-very-long-name.block-storage.internal.platform.example.com",
}

// newTroubledHub returns a hub with a driver for every kind of trouble. Names are as long as in real clusters.
func newTroubledHub(now time.Time) *fakeHub {
	h := newFakeHub()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	h.overview = Overview{
		Version: "v1.0.0", Identity: "csi-attach-hub-7d9c6f5b8-k2xwq", Started: ago(76 * time.Hour),
		Config: Config{Hash: "9f2c41d07a6b", LastSuccess: ago(26 * time.Hour),
			Files: []ConfigFile{{Path: "/etc/csi-attach-hub/drivers.yaml",
				Rejected: "/etc/csi-attach-hub/drivers.yaml rejected; the previous configuration stays active"}},
			Errors:    []string{"drivers.yaml:14: drivers[1].tls.caFile: open /tls/ca.crt: no such file or directory"},
			Conflicts: []Conflict{{Driver: troubled.paused, Winner: "drivers.yaml:12", Loser: "CSIDriver nfs.csi.k8s.io", Reason: "the same driver is learned from two places"}}},
		Replicas: []string{"csi-attach-hub-7d9c6f5b8-k2xwq", "csi-attach-hub-7d9c6f5b8-m8zlt"},
		Unserved: map[string]int{"legacy.storage.example.com": 2},
	}
	engage := func(name string, change func(*Driver)) {
		h.engage(name).fill(now, uint64(len(name)), 300*time.Millisecond)
		h.setDriver(name, func(d *Driver) {
			d.Since, d.Lease.Holder, d.Settings.Timeout, d.Settings.StuckAfter = ago(11*time.Hour), h.overview.Identity, metav1.Duration{Duration: 2 * time.Minute}, metav1.Duration{Duration: 15 * time.Minute}
			change(d)
		})
	}
	engage(troubled.lost, func(d *Driver) {
		d.State, d.Up, d.Since, d.DownSince, d.Reason, d.Endpoint = "Lost", false, ago(3*time.Minute), ago(16*time.Minute), refused, "tcp://vsphere-csi.storage.svc:9443"
		d.Lanes[0] = Lane{Operation: Attach, Queued: 9, Workers: 20, OldestSince: ago(940 * time.Second), Stuck: 4, StuckSince: ago(940 * time.Second)}
	})
	engage(troubled.hanging, func(d *Driver) {
		d.UnansweredSince, d.Busy = ago(8*time.Minute+12*time.Second), 10
		d.Lanes[0] = Lane{Operation: Attach, Running: 10, Workers: 20, OldestCall: Call{"ControllerPublishVolume", ago(8*time.Minute + 12*time.Second), vaName(2000)}}
	})
	engage(troubled.slow, func(d *Driver) {
		d.Busy, d.Lanes[1] = 1, Lane{Operation: Detach, Running: 1, Workers: 20, OldestCall: Call{"ControllerUnpublishVolume", ago(66 * time.Second), vaName(3000)}}
	})
	engage(troubled.full, func(d *Driver) {
		d.Lanes[0] = Lane{Operation: Attach, Delayed: 11, Failing: 11, FailingSince: ago(5 * time.Minute), Workers: 20, OldestSince: ago(5 * time.Minute)}
		for i := range 10 {
			d.Failures = append(d.Failures, Failure{Time: ago(time.Duration(i) * time.Second), Operation: Attach, VolumeAttachment: vaName(4000 + i), Text: exhausted})
		}
	})
	engage(troubled.paused, func(d *Driver) {
		d.State, d.Mode, d.Lanes[0].Queued, d.Lanes[0].OldestSince = "Paused", "paused", 0, time.Time{}
	})
	engage(troubled.observed, func(d *Driver) {
		d.Mode, d.Lease.Holder, d.Lease.Mine, d.Lanes[0].Queued, d.Lanes[0].OldestSince = "observe", "", false, 1, ago(4*time.Minute)
		d.Observed = &Observed{Agreed: 412, WouldHaveFailed: 1, Pending: 3, Disagreements: []Disagreement{{VolumeAttachment: vaName(6000), Node: "ip-10-0-143-201.eu-central-1.compute.internal",
			Agreement: WouldHaveFailed, Reason: "read secret storage/hostpath for the call: forbidden", Since: ago(time.Hour)}}}
		d.Checklist = []Check{{Name: "endpoint", OK: true, Text: d.Endpoint + " answers, under the name " + d.Name}, {Name: "secrets", Text: "1 of 4 cannot be read, for example storage/hostpath: forbidden"}}
	})
	engage(troubled.left, func(d *Driver) {
		d.DanglingCount, d.Dangling = 2, []DanglingPublication{{VolumeHandle: "projects/platform-prod-1234/zones/europe-west3-b/disks/pvc-0b7c2f9e-4b1d-4c3e-9a55-0d6f3c2b0001", NodeID: "projects/platform-prod-1234/zones/europe-west3-b/instances/worker-7",
			Node: "worker-7", PersistentVolume: "pvc-0b7c2f9e-4b1d-4c3e-9a55-0d6f3c2b0001", VolumeAttachment: vaName(7), Since: ago(time.Hour), Tries: 3, NextTry: now.Add(20 * time.Second), LastError: "rpc error: code = Internal desc = the disk is in use"},
			{VolumeHandle: "projects/platform-prod-1234/zones/europe-west3-b/disks/pvc-0b7c2f9e-4b1d-4c3e-9a55-0d6f3c2b0002", NodeID: "projects/platform-prod-1234/zones/europe-west3-b/instances/worker-8",
				Node: "worker-8", PersistentVolume: "pvc-0b7c2f9e-4b1d-4c3e-9a55-0d6f3c2b0002", Since: ago(30 * time.Minute), Listed: true, ReportOnly: true}}
	})
	engage(troubled.standby, func(d *Driver) {
		d.State, d.Reason, d.Lease = "WaitingForLease", "held by csi-attach-hub-7d9c6f5b8-m8zlt", Lease{Name: "l", Namespace: "storage", Holder: "csi-attach-hub-7d9c6f5b8-m8zlt", Since: ago(3 * time.Hour)}
	})
	engage(troubled.fine, func(*Driver) {})
	h.troubledVolumes(now)
	return h
}

// troubledVolumes makes the VolumeAttachments of newTroubledHub.
func (h *fakeHub) troubledVolumes(now time.Time) {
	add := func(driver string, first, n int, state AttachmentState, op Operation, age time.Duration, change func(int, *Attachment)) {
		for i := range n {
			name := fmt.Sprintf("payments-production/data-postgres-primary-%d", i)
			a := Attachment{Name: vaName(first + i), Driver: driver, Node: fmt.Sprintf("ip-10-0-143-20%d.eu-central-1.compute.internal", i%3), Claim: name, Pods: []string{fmt.Sprintf("payments-production/postgres-primary-%d", i)},
				PersistentVolume: fmt.Sprintf("pvc-%08x-4b1d-4c3e-9a55-0d6f3c2b0001", first+i), VolumeHandle: fmt.Sprintf("vol-%d", first+i),
				State: state, Operation: op, Since: now.Add(-age + time.Duration(i)*time.Second)}
			change(i, &a)
			h.attachments[a.Name] = a
		}
	}
	lost := Wait{Kind: WaitForDriver, DriverState: "Lost", Reason: refused}
	add(troubled.lost, 1000, 4, Stuck, Attach, 940*time.Second, func(_ int, a *Attachment) {
		a.Tries, a.LastError = 3, "rpc error: code = Unavailable desc = error reading from server: EOF"
		a.Waiting = lost
	})
	add(troubled.lost, 1100, 5, Waiting, Attach, 10*time.Minute, func(_ int, a *Attachment) { a.Waiting = lost })
	add(troubled.hanging, 2000, 10, Attaching, Attach, 8*time.Minute+12*time.Second, func(_ int, a *Attachment) {
		a.Call = Call{"ControllerPublishVolume", a.Since, a.Name}
	})
	add(troubled.slow, 3000, 1, Detaching, Detach, 66*time.Second, func(_ int, a *Attachment) {
		a.Call, a.Pods = Call{"ControllerUnpublishVolume", a.Since, a.Name}, nil
	})
	add(troubled.full, 4000, 10, Failing, Attach, 5*time.Minute, func(i int, a *Attachment) {
		a.Tries, a.NextTry, a.LastError, a.LastErrorTime = 6+i, now.Add(time.Duration(20+i)*time.Second), exhausted, now.Add(-time.Duration(i)*time.Second)
	})
	add(troubled.full, 4100, 1, Failing, Attach, time.Minute, func(_ int, a *Attachment) {
		a.Tries, a.LastError, a.Claim, a.Pods, a.PersistentVolume = 1, "rpc error: code = Internal desc = "+hostile, "", nil, ""
	})
	add(troubled.paused, 5000, 2, Attached, "", time.Hour, func(int, *Attachment) {})
	add(troubled.observed, 6000, 1, Waiting, Attach, 4*time.Minute, func(_ int, a *Attachment) {
		a.Waiting = Wait{Kind: WaitForDriver, DriverState: "Ready", Reason: "observed"}
	})
	add(troubled.fine, 9000, 20, Attached, "", 40*time.Hour, func(int, *Attachment) {})
	add("legacy.storage.example.com", 8000, 2, Unserved, Attach, 20*time.Minute, func(_ int, a *Attachment) { a.Waiting = Wait{Kind: WaitForConfiguration} })
}
