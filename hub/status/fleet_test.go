package status

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// newFleet returns a hub as one replica of a platform team's cluster sees it, for the
// picture in the README: twelve drivers, of which one is broken, one is still its
// sidecar's, and one is observed.
func newFleet(now time.Time) *fakeHub {
	h := newFakeHub()
	self, other := "csi-attach-hub-7d9c6f5b8-k2xwq", "csi-attach-hub-7d9c6f5b8-m8zlt"
	h.overview = Overview{
		Version: "v1.0.0", Identity: self, Started: now.Add(-76 * time.Hour),
		Config: Config{Hash: "9f2c41d07a6b", LastSuccess: now.Add(-26 * time.Hour)},
	}
	for i, one := range []struct {
		name, holder string
		latency      time.Duration // of most calls; 0 if there were none lately
		volumes      int
	}{
		{"csi.vsphere.vmware.com", self, 0, 214},
		{"rbd.csi.ceph.com", self, 350 * time.Millisecond, 871},
		{"disk.csi.azure.com", "disk-csi-controller-5f7d-tq9r", 0, 96},
		{"hostpath.csi.k8s.io", "csi-hostpathplugin-0", 0, 14},
		{"ebs.csi.aws.com", self, 1700 * time.Millisecond, 1204},
		{"csi.trident.netapp.io", self, 600 * time.Millisecond, 388},
		{"driver.longhorn.io", self, 250 * time.Millisecond, 505},
		{"pd.csi.storage.gke.io", self, 2400 * time.Millisecond, 642},
		{"csi-unity.dellemc.com", other, 0, 57},
		{"fsx.openzfs.csi.aws.com", other, 0, 33},
		{"io.openebs.csi-mayastor", other, 0, 129},
		{"pure-csi", other, 0, 310},
	} {
		h.engage(one.name).fill(now, uint64(i), one.latency)
		h.setDriver(one.name, func(d *Driver) {
			d.Since, d.Version = now.Add(-time.Duration(11+i*7)*time.Hour), fmt.Sprintf("v1.%d.0", 20+i)
			d.Lease.Holder, d.Lease.Mine = one.holder, one.holder == self
			if !d.Lease.Mine {
				d.State, d.Reason = "WaitingForLease", "held by "+one.holder
			}
			h.trouble(d, now)
		})
		h.change(func() { h.volumes(one.name, one.volumes, now) })
	}
	h.overview.Replicas = []string{self, other}
	return h
}

// fill counts operations of the last quarter of an hour, of about the same latency; the
// same ones each time.
func (m *DriverMetrics) fill(now time.Time, seed uint64, latency time.Duration) {
	random := rand.New(rand.NewPCG(seed, seed))
	for s := range recentSlots {
		if latency == 0 || random.IntN(5) == 0 {
			continue
		}
		for range 1 + random.IntN(6) {
			took := float64(latency) * math.Exp(random.NormFloat64()/2)
			m.recent.add(now.Add(-time.Duration(s)*slotLength), Success, time.Duration(took))
		}
	}
}

const (
	refused   = "dial tcp 10.96.41.7:9443: connect: connection refused"
	exhausted = "rpc error: code = ResourceExhausted desc = attachment limit of instance i-0a1f exceeded"
)

// trouble is what is wrong with some drivers.
func (h *fakeHub) trouble(d *Driver, now time.Time) {
	switch d.Name {
	case "csi.vsphere.vmware.com":
		d.State, d.Up, d.Since, d.DownSince, d.Reason, d.Endpoint = "Lost", false, now.Add(-16*time.Minute), now.Add(-16*time.Minute), refused, "tcp://vsphere-csi.storage.svc:9443"
		d.ConnectionError = Failure{Time: now.Add(-3 * time.Second), Text: refused}
		d.Lanes[0] = Lane{Operation: Attach, Queued: 9, Workers: 20, OldestSince: now.Add(-940 * time.Second), Stuck: 2, StuckSince: now.Add(-940 * time.Second)}
		d.Lanes[1] = Lane{Operation: Detach, Queued: 3, Workers: 20, OldestSince: now.Add(-610 * time.Second)}
		m := h.metrics.Driver(d.Name)
		for s := range 64 {
			m.recent.add(now.Add(-time.Duration(s)*slotLength), Unavailable, time.Second)
		}
	case "ebs.csi.aws.com":
		d.Lanes[0] = Lane{Operation: Attach, Running: 4, Delayed: 1, Failing: 1, FailingSince: now.Add(-35 * time.Second), Workers: 20, OldestSince: now.Add(-35 * time.Second),
			OldestCall: Call{"ControllerPublishVolume", now.Add(-2 * time.Second), vaName(1)}}
		d.Lanes[1] = Lane{Operation: Detach, Running: 2, Workers: 20}
		d.Failures = []Failure{{Time: now.Add(-6 * time.Second), Operation: Attach, VolumeAttachment: vaName(1), Text: exhausted}}
		for s := range 4 {
			h.metrics.Driver(d.Name).recent.add(now.Add(-time.Duration(s)*slotLength), Refused, time.Second)
		}
	case "rbd.csi.ceph.com":
		d.Lanes[0].Running = 1
	case "hostpath.csi.k8s.io":
		d.State, d.Reason, d.Mode, d.Observed = "Ready", "", "observe", &Observed{Agreed: 412}
		d.Checklist = []Check{{Name: "endpoint", OK: true}, {Name: "lease", OK: true}, {Name: "secrets", OK: true}}
	}
}

// volumes gives a driver VolumeAttachments, most of them attached.
func (h *fakeHub) volumes(driver string, n int, now time.Time) {
	first := len(h.attachments) + 1
	for i := range n {
		app := []string{"postgres", "kafka", "prometheus", "minio"}[i%4]
		a := Attachment{
			Claim: fmt.Sprintf("%s/data-%s-%d", app, app, i/4), Name: vaName(first + i), Driver: driver, Node: fmt.Sprintf("worker-%d", i%40), State: Attached,
			PersistentVolume: fmt.Sprintf("pvc-%08x-4b1d-4c3e-9a55-0d6f3c2b%04x", (first+i)*31, i), Since: now.Add(-29 * time.Hour),
		}
		switch {
		case driver == "csi.vsphere.vmware.com" && i < 12:
			a.State, a.Operation, a.Since = Waiting, Attach, now.Add(-time.Duration(15-i)*time.Minute)
			a.Pods = []string{fmt.Sprintf("%s/%s-%d", app, app, i/4)}
			a.Waiting = Wait{Kind: WaitForDriver, DriverState: "Lost", Reason: refused}
			if i < 2 {
				a.State, a.Tries, a.LastError = Stuck, 3, "rpc error: code = Unavailable desc = error reading from server: EOF"
				a.Waiting = Wait{}
			}
		case driver == "ebs.csi.aws.com" && i < 7:
			a.State, a.Operation, a.Since = Attaching, Attach, now.Add(-2*time.Second)
			if i == 0 {
				a.State, a.Tries, a.NextTry, a.LastError, a.Since = Failing, 7, now.Add(7*time.Second), exhausted, now.Add(-35*time.Second)
			} else if i > 4 {
				a.State, a.Operation = Detaching, Detach
			}
		}
		h.attachments[a.Name] = a
	}
}
