package status

import (
	"crypto/sha256"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hostile is what a driver may answer: it must stay text wherever it is shown.
const hostile = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'"> "'><svg onload=alert(1)> {{.}} ` + "\u202egnorw" + ` javascript:alert(1)`

// newBusyHub returns a hub with drivers and VolumeAttachments in all the states that
// there are: few are broken, most are well.
func newBusyHub(drivers, attachments int) *fakeHub {
	h := newFakeHub()
	now := time.Now()
	h.overview = Overview{
		Version: "v0.3.0", Identity: "csi-attach-hub-7c9d-abcde", Started: now.Add(-76 * time.Hour),
		Config: Config{Hash: "9f2c41d07a6b", LastSuccess: now.Add(-26 * time.Hour),
			Warnings: []string{"drivers.yaml:31: drivers[4].timeout: 15s is shorter than most drivers need"},
			Conflicts: []Conflict{{Driver: "nfs.csi.k8s.io", Winner: "drivers.yaml:12", Loser: "CSIDriver nfs.csi.k8s.io",
				Reason: "the same driver is learned from two places"}}},
		Unserved: map[string]int{"legacy.example.com": 12},
	}
	mine := h.overview.Identity
	other := "csi-attach-hub-7c9d-fghij"
	for i := range drivers {
		d := busyDriver(i, now)
		m := h.engage(d.Name)
		for s := range recentSlots {
			at := now.Add(-time.Duration(s) * slotLength)
			if d.Lease.Mine = i%3 != 2 || i < 8; !d.Lease.Mine || (i+s)%7 == 0 {
				continue
			}
			if i == 1 && s < 30 || i == 3 && s%5 == 0 {
				m.recent.add(at, Unavailable, time.Minute)
			}
			if i == 1 && s < 30 {
				continue
			}
			for n := range 1 + (i+s)%4 {
				m.recent.add(at, Success, time.Duration(40+i*7%400+n*n*n*n*35)*time.Millisecond)
			}
		}
		if d.Lease.Mine {
			d.Lease.Holder = mine
		} else {
			d.State, d.Lease.Holder, d.Reason = "WaitingForLease", other, "held by "+other
		}
		h.drivers[d.Name] = d
	}
	h.overview.Replicas = []string{mine, other}
	h.attach(drivers, attachments, now)
	return h
}

func busyName(i int) string {
	if names := []string{"ebs.csi.aws.com", "csi.vsphere.vmware.com", "hostpath.csi.k8s.io", "rbd.csi.ceph.com"}; i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("block-%02d.csi.example.com", i)
}

func busyDriver(i int, now time.Time) Driver {
	d := Driver{
		Name: busyName(i), State: "Ready", Up: true, Mode: "active", Source: fmt.Sprintf("drivers.yaml:%d", 10+i*4), Since: now.Add(-time.Duration(i+1) * 47 * time.Minute),
		Endpoint: "unix:///csi/" + busyName(i) + "/csi.sock", Version: "v1.31.0", Capabilities: []string{"PUBLISH_UNPUBLISH_VOLUME", "LIST_VOLUMES_PUBLISHED_NODES"},
		Settings: Settings{Timeout: metav1.Duration{Duration: 2 * time.Minute}, StuckAfter: metav1.Duration{Duration: 15 * time.Minute}},
		Lease:    Lease{Name: "external-attacher-leader-" + busyName(i), Namespace: "csi-attach-hub", Since: now.Add(-3 * time.Hour)},
		Workers:  20,
		Lanes: []Lane{{Operation: Attach, Workers: 20}, {Operation: Detach, Workers: 20},
			{Operation: Drift, Workers: 10}, {Operation: Finalizer, Workers: 4}},
	}
	switch {
	case i == 1: // broken
		d.State, d.Up, d.Since, d.DownSince = "Lost", false, now.Add(-7*time.Minute), now.Add(-7*time.Minute)
		d.Reason = "dial unix /csi/csi.vsphere.vmware.com/csi.sock: connect: connection refused"
		d.ConnectionError = Failure{Time: now.Add(-3 * time.Second), Text: d.Reason}
		d.Lanes[0] = Lane{Operation: Attach, Queued: 41, Delayed: 3, Failing: 3, Workers: 20, OldestSince: now.Add(-1210 * time.Second), Stuck: 7, StuckSince: now.Add(-20 * time.Minute)}
		d.Lanes[1].Queued = 6
		d.Failures = []Failure{
			{Time: now.Add(-23 * time.Minute), Operation: Attach, VolumeAttachment: vaName(1), Text: "rpc error: code = Unavailable desc = error reading from server: EOF"},
			{Time: now.Add(-24 * time.Minute), Operation: Attach, VolumeAttachment: vaName(101), Text: "rpc error: code = Internal desc = vCenter session is not authenticated"},
		}
	case i == 3: // needs attention
		d.Busy = 9
		d.Lanes[0] = Lane{Operation: Attach, Running: 9, Queued: 3, Delayed: 2, Failing: 2, Workers: 20, OldestSince: now.Add(-14 * time.Second),
			OldestCall: Call{"ControllerPublishVolume", now.Add(-9 * time.Second), vaName(103)}}
		d.Failures = []Failure{{Time: now.Add(-8 * time.Second), Operation: Attach, VolumeAttachment: vaName(3),
			Text: "rpc error: code = ResourceExhausted desc = node worker-17 has 128 of 128 volumes: detach one, or schedule the Pod elsewhere"}}
	case i == 2:
		d.Mode, d.Observed = "observe", &Observed{Agreed: 412, WouldHaveFailed: 1, Differs: 0, Pending: 3, Disagreements: []Disagreement{
			{VolumeAttachment: vaName(2), Node: "worker-2", Agreement: WouldHaveFailed, Reason: "read secret storage/hostpath for the call: forbidden", Since: now.Add(-time.Hour)}}}
		d.Checklist = []Check{{Name: "endpoint", OK: true, Text: d.Endpoint + " answers, under the name " + d.Name},
			{Name: "secrets", Text: "1 of 4 cannot be read, for example storage/hostpath: forbidden"}, {Name: "lease", OK: true, Text: "held by csi-hostpathplugin-0"}}
	case i == 6:
		d.Lanes[0].Running, d.Busy = 2, 2
		d.ForeignWriter = ForeignWriter{Manager: "csi-attacher", Time: now.Add(-12 * time.Minute), VolumeAttachment: vaName(6)}
	case i%9 == 0:
		d.Lanes[0].Running, d.Lanes[1].Running, d.Busy = 1, 2, 3
	}
	return d
}

// vaName is as the attach-detach controller makes it.
func vaName(i int) string { return fmt.Sprintf("csi-%x", sha256.Sum256(fmt.Append(nil, i))) }

// attach makes VolumeAttachments, and states of them that fit their drivers.
func (h *fakeHub) attach(drivers, n int, now time.Time) {
	for i := range n {
		a := Attachment{
			Name: vaName(i), Driver: busyName(i % drivers), Node: fmt.Sprintf("worker-%d", i%211), PersistentVolume: fmt.Sprintf("pvc-%08x-4b1d-4c3e-9a55-0d6f3c2b%04x", i*31, i%65536),
			Claim: fmt.Sprintf("team-%d/data-db-%d", i%7, i), VolumeHandle: fmt.Sprintf("vol-%012x", i*104729), State: Attached, Since: now.Add(-time.Duration(i+29) * time.Minute),
		}
		switch {
		case i%drivers == 1%drivers && i < 20*drivers:
			a.Pods = []string{fmt.Sprintf("team-%d/db-%d", i%7, i)}
			a.State, a.Operation, a.Since = Waiting, Attach, now.Add(-20*time.Minute)
			a.Waiting = Wait{Kind: WaitForDriver, DriverState: "Lost", Reason: "connection refused"}
			if i < 7*drivers {
				a.State, a.Tries, a.LastError = Stuck, 4, "rpc error: code = Unavailable desc = error reading from server: EOF"
			}
		case i%drivers == 3%drivers && i < 2*drivers:
			a.State, a.Operation, a.Tries, a.NextTry, a.Since = Failing, Attach, 6, now.Add(40*time.Second), now.Add(-70*time.Second)
			a.LastError = "rpc error: code = ResourceExhausted desc = node worker-17 has 128 of 128 volumes: detach one, or schedule the Pod elsewhere"
		case i%97 == 5:
			a.State, a.Operation, a.Since = Waiting, Attach, now.Add(-9*time.Second)
			a.Waiting = Wait{Kind: WaitForDetach, Node: "worker-9", VolumeAttachment: vaName(9)}
		case i%89 == 4:
			a.State, a.Operation, a.Since = Detaching, Detach, now.Add(-2*time.Second)
		}
		h.attachments[a.Name] = a
	}
	for i := range h.overview.Unserved["legacy.example.com"] {
		name := fmt.Sprintf("legacy-%02d", i)
		a := Attachment{Name: name, Driver: "legacy.example.com", Node: "worker-1", State: Unserved}
		a.Waiting = Wait{Kind: WaitForConfiguration}
		h.attachments[name] = a
	}
}
