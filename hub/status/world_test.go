package status

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
)

// fakeHub is a hub as far as this package sees one: drivers are engaged and retired,
// their VolumeAttachments come and change, and what happens is counted.
type fakeHub struct {
	metrics *Metrics
	health  *probes.Probes

	mu          sync.Mutex
	drivers     map[string]Driver
	attachments map[string]Attachment
	overview    Overview
	panics      bool // whoever asks for the drivers
}

// newFakeHub returns a hub with no driver.
func newFakeHub() *fakeHub {
	return &fakeHub{
		metrics:     NewMetrics(),
		health:      new(probes.Probes),
		drivers:     map[string]Driver{},
		attachments: map[string]Attachment{},
		overview: Overview{Version: "v1.2.3", Identity: "hub-a", Config: Config{
			Files: []ConfigFile{{Path: "drivers.yaml"}}, Hash: "abc", LastSuccess: time.Unix(1700000000, 500e6),
		}},
	}
}

// engage begins to serve a driver, which is up at once.
func (h *fakeHub) engage(name string) *DriverMetrics {
	h.change(func() {
		h.drivers[name] = Driver{
			Name: name, State: "Ready", Up: true, Mode: "active", Source: "drivers.yaml:3",
			Endpoint: "unix:///csi/" + name + "/csi.sock", Version: "4.5.6", Since: time.Unix(1700000001, 0),
			Lease: Lease{Name: "external-attacher-leader-" + name, Holder: h.overview.Identity, Mine: true}, Workers: 20,
			Lanes: []Lane{{Operation: Attach, Workers: 10}, {Operation: Detach, Workers: 10}, {Operation: Drift}, {Operation: Finalizer}},
		}
	})
	return h.metrics.Driver(name)
}

// retire ends the service of a driver.
func (h *fakeHub) retire(name string) {
	h.change(func() { delete(h.drivers, name) })
	h.metrics.Forget(name)
}

// load gives a driver n VolumeAttachments, each on a node of its own, with each of
// which something happens.
func (h *fakeHub) load(driver string, n int, state AttachmentState) {
	m := h.metrics.Driver(driver)
	h.change(func() {
		for i := range n {
			name := fmt.Sprintf("%s-%05d", driver, i)
			h.attachments[name] = Attachment{Name: name, Driver: driver, Node: fmt.Sprintf("node-%d", i), State: state,
				PersistentVolume: "pv-" + name, VolumeHandle: "vol-" + name}
		}
	})
	for i := range n {
		m.Operation(Attach, Results[i%len(Results)], time.Second)
		m.Operation(Detach, Results[i%len(Results)], time.Second)
		m.Retry(Attach)
	}
}

// setDriver changes a driver that is engaged.
func (h *fakeHub) setDriver(name string, change func(*Driver)) {
	h.change(func() {
		d := h.drivers[name]
		change(&d)
		h.drivers[name] = d
	})
}

func (h *fakeHub) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *fakeHub) Drivers() []Driver {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.panics {
		panic("out of order")
	}
	return slices.Collect(maps.Values(h.drivers))
}

func (h *fakeHub) Attachments(AttachmentFilter) []Attachment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.attachments))
}

func (h *fakeHub) Checklist(_ context.Context, driver string) []Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.drivers[driver].Checklist
}

func (h *fakeHub) Overview() Overview {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.overview
	o.Unserved = maps.Clone(o.Unserved)
	o.Replicas = slices.Clone(o.Replicas)
	return o
}

// hostile is what a driver may answer: it must stay text wherever it is shown.
const hostile = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'"> "'><svg onload=alert(1)> {{.}} ` + "\u202egnorw" + ` javascript:alert(1)`

const (
	refused      = "dial tcp 10.96.41.7:9443: connect: connection refused"
	exhausted    = "rpc error: code = ResourceExhausted desc = attachment limit of instance i-0a1f exceeded"
	otherReplica = "csi-attach-hub-7d9c6f5b8-m8zlt"
)

// troubled are the drivers of newHub that are not well, by what is the matter with them, and one that is.
var troubled = struct{ lost, hanging, slow, full, paused, observed, left, standby, fine string }{
	"csi.vsphere.vmware.com", "rbd.csi.ceph.com", "ebs.csi.aws.com", "disk.csi.azure.com", "nfs.csi.k8s.io", "hostpath.csi.k8s.io",
	"pd.csi.storage.gke.io", "csi-unity.dellemc.com", "a-driver-with-a-very-long-name.block-storage.internal.platform.example.com",
}

// newHub returns a hub with the troubled drivers that are named, or with all of them and a rejected configuration if none
// is. Beside them it has many drivers and VolumeAttachments that are well. Names are as long as in real clusters.
func newHub(drivers, volumes int, troubles ...string) *fakeHub {
	h, now := newFakeHub(), time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	h.overview = Overview{Version: "v1.0.0", Identity: "csi-attach-hub-7d9c6f5b8-k2xwq", Started: ago(76 * time.Hour), Config: Config{Hash: "9f2c41d07a6b", LastSuccess: ago(26 * time.Hour)}}
	h.overview.Replicas = []string{h.overview.Identity, otherReplica}
	if troubles == nil {
		h.overview.Unserved = map[string]int{"legacy.storage.example.com": 2}
		h.overview.Config.Files = []ConfigFile{{Path: "/etc/csi-attach-hub/drivers.yaml", Rejected: "/etc/csi-attach-hub/drivers.yaml rejected; the previous configuration stays active"}}
		h.overview.Config.Errors = []string{"drivers.yaml:14: drivers[1].tls.caFile: open /tls/ca.crt: no such file or directory"}
		h.overview.Config.Conflicts = []Conflict{{Driver: troubled.paused, Winner: "drivers.yaml:12", Loser: "CSIDriver nfs.csi.k8s.io", Reason: "the same driver is learned from two places"}}
	}
	for name, change := range map[string]func(*Driver){
		troubled.lost: func(d *Driver) {
			d.State, d.Up, d.Since, d.DownSince, d.Reason, d.Endpoint = "Lost", false, ago(3*time.Minute), ago(16*time.Minute), refused, "tcp://vsphere-csi.storage.svc:9443"
			d.Lease.Holder, d.Lease.Mine = "", false // the hub frees it after five minutes
			d.Lanes[0] = Lane{Operation: Attach, Queued: 9, Workers: 20, OldestSince: ago(905 * time.Second), Stuck: 4, StuckSince: ago(905 * time.Second)}
			d.Failures = []Failure{{Time: ago(24 * time.Minute), Operation: Attach, VolumeAttachment: vaName(1100), Text: "rpc error: code = Internal desc = vCenter session is not authenticated"}}
			for s := range 64 {
				h.metrics.Driver(d.Name).recent.add(ago(time.Duration(s)*slotLength), Unavailable, time.Second)
			}
		},
		troubled.hanging: func(d *Driver) {
			d.UnansweredSince, d.Busy = ago(8*time.Minute+12*time.Second), 10
			d.Lanes[0] = Lane{Operation: Attach, Running: 10, Workers: 20, OldestCall: Call{"ControllerPublishVolume", ago(8*time.Minute + 12*time.Second), vaName(2000)}}
		},
		troubled.slow: func(d *Driver) {
			d.Busy, d.Lanes[1] = 1, Lane{Operation: Detach, Running: 1, Workers: 20, OldestCall: Call{"ControllerUnpublishVolume", ago(66 * time.Second), vaName(3000)}}
		},
		troubled.full: func(d *Driver) {
			d.Lanes[0] = Lane{Operation: Attach, Delayed: 11, Failing: 11, FailingSince: ago(5 * time.Minute), Workers: 20, OldestSince: ago(5 * time.Minute)}
			for i := range 10 {
				d.Failures = append(d.Failures, Failure{Time: ago(time.Duration(i) * time.Second), Operation: Attach, VolumeAttachment: vaName(4000 + i), Text: exhausted})
			}
		},
		troubled.paused: func(d *Driver) { d.State, d.Mode = "Paused", "paused" },
		troubled.observed: func(d *Driver) {
			d.Mode, d.Lease.Holder, d.Lease.Mine, d.Lanes[0].Queued, d.Lanes[0].OldestSince = "observe", "", false, 1, ago(4*time.Minute)
			d.Observed = &Observed{Agreed: 412, WouldHaveFailed: 1, Pending: 3, Disagreements: []Disagreement{{VolumeAttachment: vaName(6000), Node: "ip-10-0-143-201.eu-central-1.compute.internal",
				Agreement: WouldHaveFailed, Reason: "read secret storage/hostpath for the call: forbidden", Since: ago(time.Hour)}}}
			d.Checklist = []Check{{Name: "endpoint", OK: true, Text: d.Endpoint + " answers, under the name " + d.Name}, {Name: "secrets", Text: "1 of 4 cannot be read, for example storage/hostpath: forbidden"}}
		},
		troubled.left: func(d *Driver) {
			const project, volume = "projects/platform-prod-1234/zones/europe-west3-b/", "pvc-0b7c2f9e-4b1d-4c3e-9a55-0d6f3c2b000"
			d.DanglingCount, d.Dangling = 2, []DanglingPublication{{VolumeHandle: project + "disks/" + volume + "1", NodeID: project + "instances/worker-7", Node: "worker-7", PersistentVolume: volume + "1",
				VolumeAttachment: vaName(7), Since: ago(time.Hour), Tries: 3, NextTry: now.Add(20 * time.Second), LastError: "rpc error: code = Internal desc = the disk is in use"},
				{VolumeHandle: project + "disks/" + volume + "2", NodeID: project + "instances/worker-8", Node: "worker-8", PersistentVolume: volume + "2", Since: ago(30 * time.Minute), FromList: true, ReportOnly: true}}
		},
		troubled.standby: standby(ago(3 * time.Hour)),
		troubled.fine:    func(*Driver) {},
	} {
		if troubles == nil || slices.Contains(troubles, name) {
			h.engageFor(name, 11*time.Hour, change)
		}
	}
	h.troubledVolumes(now)
	for i := range drivers {
		change := func(*Driver) {}
		if i%3 == 2 {
			change = standby(ago(3 * time.Hour))
		}
		h.engageFor(wellName(i), time.Duration(11+i)*time.Hour, change)
	}
	for i := range volumes {
		app := []string{"postgres", "kafka", "prometheus", "minio"}[i%4]
		a := Attachment{Name: vaName(10000 + i), Driver: wellName(i % drivers), Node: fmt.Sprintf("worker-%d", i%40), State: Attached, Since: ago(29*time.Hour + time.Duration(i)*time.Minute),
			Claim: fmt.Sprintf("%s/data-%s-%d", app, app, i/4), PersistentVolume: fmt.Sprintf("pvc-%08x-4b1d-4c3e-9a55-0d6f3c2b%04x", i*31, i%65536)}
		h.attachments[a.Name] = a
	}
	return h
}

func standby(since time.Time) func(*Driver) {
	return func(d *Driver) {
		d.State, d.Reason = "WaitingForLease", "held by "+otherReplica
		d.Lease = Lease{Name: "l", Namespace: "storage", Holder: otherReplica, Since: since}
	}
}

// wellName returns the name of a driver that is well.
func wellName(i int) string {
	if names := []string{"csi.trident.netapp.io", "driver.longhorn.io", "pure-csi", "fsx.openzfs.csi.aws.com", "io.openebs.csi-mayastor",
		"csi.hetzner.cloud", "cinder.csi.openstack.org", "linodebs.csi.linode.com"}; i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("block-%02d.csi.example.com", i)
}

// engageFor engages a driver that has been served for so long, and that, if it answers, has done something in the last quarter
// of an hour: the same operations each time, of about the same latency.
func (h *fakeHub) engageFor(name string, age time.Duration, change func(*Driver)) {
	m, now := h.engage(name), time.Now()
	h.setDriver(name, func(d *Driver) {
		d.Since, d.Version = now.Add(-age), fmt.Sprintf("v1.%d.0", len(name))
		d.Settings.Timeout, d.Settings.StuckAfter = metav1.Duration{Duration: 2 * time.Minute}, metav1.Duration{Duration: 15 * time.Minute}
		change(d)
	})
	if d := h.drivers[name]; !d.Up || d.State != "Ready" {
		return
	}
	random := rand.New(rand.NewPCG(uint64(len(name)), 0))
	for s := range recentSlots {
		for range random.IntN(7) {
			took := float64(len(name)) * math.Exp(random.NormFloat64()/2) * 5e7
			m.recent.add(now.Add(-time.Duration(s)*slotLength), Success, time.Duration(took))
		}
	}
}

// vaName is as the attach-detach controller makes it.
func vaName(i int) string { return fmt.Sprintf("csi-%x", sha256.Sum256(fmt.Append(nil, i))) }

// troubledVolumes makes the VolumeAttachments of the troubled drivers that are engaged.
func (h *fakeHub) troubledVolumes(now time.Time) {
	add := func(driver string, first, n int, state AttachmentState, op Operation, age time.Duration, change func(int, *Attachment)) {
		if _, served := h.drivers[driver]; !served && h.overview.Unserved[driver] == 0 {
			return
		}
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
	add(troubled.lost, 1000, 4, Stuck, Attach, 905*time.Second, func(_ int, a *Attachment) {
		a.Tries, a.LastError, a.Waiting = 3, "rpc error: code = Unavailable desc = error reading from server: EOF", lost
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
