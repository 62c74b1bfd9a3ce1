package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// attacherArgs are those of csi-attacher; they go on with the driver's socket.
	attacherArgs = "--leader-election --leader-election-namespace=default --leader-election-lease-duration=8s --leader-election-renew-deadline=6s " +
		"--leader-election-retry-period=500ms --kube-api-qps=100 --kube-api-burst=200 --v=2 --timeout=5s --retry-interval-start=100ms " +
		"--retry-interval-max=1s --reconcile-sync=2s --csi-address="
	// attacherTerm is the longest that csi-attacher leads: it may not get on before a hub has detached what it left.
	attacherTerm = 10 * time.Second
)

// handover hands a driver to and fro between a hub and the real csi-attacher: one leads, the other one stands by. The books
// tell their calls apart by the process that has made the connection.
type handover struct {
	*scene
	driver     *testbed.Driver
	leases     *testbed.Watcher[*coordinationv1.Lease]
	program    string           // csi-attacher
	kubeconfig string           // of csi-attacher
	holder     string           // identity of csi-attacher in leases
	attacher   *testbed.Process // that was started last
	started    int              // csi-attachers
	callers    callers
	killed     []time.Time // when hubs were killed
}

// newHandover starts a hub, which leads, and then csi-attacher.
func newHandover(t *testing.T, limit time.Duration) *handover {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the books know the processes that call the driver on Linux only")
	}
	program := testbed.CSIAttacher(t)
	h := &handover{scene: newScene(t, "handover"), program: program, callers: callers{}}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	h.ctx = ctx
	h.driver = h.serve("d", fakecsi.AttachLatency(fakecsi.Latency{Base: 20 * time.Millisecond}),
		fakecsi.Knobs{FinishAbandoned: new(true)}) // what begins goes on when its caller is killed, as in a storage system
	h.kubeconfig = h.kubeconfigFor(h.prefix+"-csi-attacher", mayAttach)
	host, err := os.Hostname()
	h.must(err)
	h.holder = regexp.MustCompile("[^a-zA-Z0-9-]").ReplaceAllString(host, "-") // as csi-lib-utils does
	h.leases, err = testbed.WatchLeases(h.ctx, h.Plane.Clientset(), "default", nil)
	h.must(err)
	t.Cleanup(h.leases.Close)
	h.settle("active")
	h.startHub(append(shortLeases, "-v=2")...)
	h.waitHub()
	h.startAttacher(false)
	return h
}

// settle writes drivers.yaml with a mode. What csi-attacher leaves attached is detached after two listings.
func (h *handover) settle(mode string) {
	h.t.Helper()
	h.configure("drivers:\n%s", h.driver.Entry("mode: "+mode+", timeout: 5s, retry: {initial: 100ms, max: 1s}, drift: {interval: 1s, unexpected: detach}"))
	h.rewrite()
}

// startAttacher starts csi-attacher. With release it releases its lease on SIGTERM, after it has cancelled its
// calls; otherwise it ends at once, and its lease runs out.
func (h *handover) startAttacher(release bool) {
	h.t.Helper()
	h.started++
	name := fmt.Sprint("csi-attacher", h.started)
	p, err := testbed.StartProcess(h.ctx, testbed.ProcessOptions{Name: name, Path: h.program, LogPath: filepath.Join(h.Dir, name+".log"),
		Args: append(strings.Fields(attacherArgs+h.driver.Socket), "--kubeconfig="+h.kubeconfig, fmt.Sprintf("--feature-gates=ReleaseLeaderElectionOnExit=%v", release))})
	h.must(err)
	testbed.KillAtEnd(h.t, p)
	h.attacher, h.callers[p.PID()] = p, csiAttacher
}

// waitHolder waits until the driver's lease is held as it should be.
func (h *handover) waitHolder(what string, holds func(holder string) bool) {
	h.t.Helper()
	h.must(h.leases.WaitFor(h.ctx, "the lease held by "+what, func(all []*coordinationv1.Lease) bool {
		i := slices.IndexFunc(all, func(l *coordinationv1.Lease) bool { return l.Name == registry.LeaseName(h.driver.Name) })
		return i >= 0 && holds(ptr.Deref(all[i].Spec.HolderIdentity, ""))
	}))
}

func (h *handover) waitHub() {
	h.t.Helper()
	h.waitHolder("the hub", func(holder string) bool { return holder != h.holder && holder != "" })
}

// The ways in which a hub leaves the driver to csi-attacher.
const (
	bySIGTERM = iota
	byEdit    // `mode: paused`
	bySIGKILL
)

// toAttacher has the hub leave, and waits until csi-attacher leads. A hub stands by then, or is paused.
func (h *handover) toAttacher(way int) {
	h.t.Helper()
	switch way {
	case bySIGTERM:
		h.checkExit(h.hub.Process)
		for at, c := range h.withoutOwner() {
			if h.callers[c.Peer] == "" {
				h.t.Errorf("the hub has ended and left %s attached to %s without a VolumeAttachment%s", at.Volume, at.Node, h.callers.historyOf(h.driver.Backend.Books(), at.Volume, c.Start))
			}
		}
	case byEdit:
		h.settle("paused")
	case bySIGKILL:
		h.killed = append(h.killed, time.Now())
		h.hub.Kill()
	}
	h.waitHolder("csi-attacher", func(holder string) bool { return holder == h.holder })
	if way != byEdit {
		h.startHub(append(shortLeases, "-v=2")...)
	}
}

// toHub stops csi-attacher, waits until the hub leads, starts another csi-attacher that stands by, and waits until
// the hub has detached what was left behind.
func (h *handover) toHub(kill bool) {
	h.t.Helper()
	if kill {
		h.attacher.Kill()
	} else if err := h.attacher.Stop(h.ctx, 30*time.Second); err != nil {
		h.t.Logf("csi-attacher ended on SIGTERM with: %v", err) // it does not handle SIGTERM unless it releases its lease
	}
	h.waitHub()
	h.startAttacher(h.started%2 == 1)
	left := h.withoutOwner()
	h.until(func() bool {
		now, owned := publications(h.driver.Backend.Books()), h.owned(h.Attachments.List())
		for at, c := range left {
			if now[at].ID == c.ID && !owned[at] {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("the hub has never detached all of %+v", left) })
}

// owned are the volumes and node IDs that VolumeAttachments ask for.
func (h *handover) owned(all []*storagev1.VolumeAttachment) map[fakecsi.VolumeNode]bool {
	owned := map[fakecsi.VolumeNode]bool{}
	for _, va := range all {
		if va.Spec.Attacher == h.driver.Name {
			owned[fakecsi.VolumeNode{Volume: *va.Spec.Source.PersistentVolumeName, Node: testbed.NodeID(va.Spec.NodeName)}] = true
		}
	}
	return owned
}

// withoutOwner returns what is attached now and has no VolumeAttachment. The API server is asked between two
// looks at the books, as both change meanwhile.
func (h *handover) withoutOwner() map[fakecsi.VolumeNode]fakecsi.Call {
	h.t.Helper()
	left := publications(h.driver.Backend.Books())
	list, err := h.Plane.Clientset().StorageV1().VolumeAttachments().List(h.ctx, metav1.ListOptions{})
	h.must(err)
	var all []*storagev1.VolumeAttachment
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	owned, after := h.owned(all), publications(h.driver.Backend.Books())
	for at, c := range left {
		if owned[at] || after[at].ID != c.ID {
			delete(left, at)
		}
	}
	return left
}

// checkEnd ends a load with each volume attached, checks that the driver has them where the objects say, and has them
// detached.
func (h *handover) checkEnd(c *churn) {
	h.t.Helper()
	settled, err := c.Settle(h.ctx)
	h.must(err)
	b := h.driver.Backend.Books()
	if len(settled) != c.o.Volumes || len(b.Attached) != c.o.Volumes {
		h.t.Errorf("%d volumes attached, %d in the driver's books, want %d", len(settled), len(b.Attached), c.o.Volumes)
	}
	h.waitFor("all attached without an error", func(own []*storagev1.VolumeAttachment) bool {
		return !slices.ContainsFunc(own, func(va *storagev1.VolumeAttachment) bool {
			return !va.Status.Attached || va.Status.AttachError != nil || va.Status.DetachError != nil || !attach.HasFinalizer(va.Finalizers, attach.Finalizer(h.driver.Name))
		})
	})
	var all []testbed.Object
	for volume, node := range settled {
		if !b.IsAttached(volume, testbed.NodeID(node)) || len(b.Attached[volume]) != 1 {
			h.t.Errorf("%s is to be on %s, the driver has it on %v", volume, node, b.Attached[volume])
		}
		all = append(all, c.attachment(volume, node))
	}
	h.delete(all...)
	h.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	if b := h.driver.Backend.Books(); len(b.Attached) > 0 {
		h.t.Errorf("attached at the end: %v", b.Attached)
	}
}

// handovers returns how often the real csi-attacher and the hub take a driver over from each other: six times, or
// as often as the environment variable HANDOVERS says (make handover), and the time limit.
func handovers(t *testing.T) (n int, limit time.Duration) {
	t.Helper()
	n = 6
	if text := os.Getenv("HANDOVERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 2 || n%2 == 1 {
			t.Fatalf("HANDOVERS=%s: want an even number, so that the hub leads at the end", text)
		}
	}
	return n, testTimeout + time.Duration(n)*20*time.Second
}

// The hub leaves in each way in turn; csi-attacher is stopped by SIGTERM or, every second time, by SIGKILL. Meanwhile Pods
// move volumes among nodes, and VolumeAttachments and PersistentVolumes are made again under the same names. Violations by
// csi-attacher do not count.
func TestTheHubAndTheRealCSIAttacherTakeADriverOverFromEachOther(t *testing.T) {
	t.Parallel()
	const volumes = 6
	n, limit := handovers(t)
	h := newHandover(t, limit)
	var nodes []string
	for i := range 4 {
		node := fmt.Sprint("handover-node", i)
		h.create(testbed.Node{Name: node}, // it says that no volume is in use there
			testbed.CSINode{Node: node, Drivers: map[string]string{h.driver.Name: testbed.NodeID(node)}})
		nodes = append(nodes, node)
	}
	load := startChurn(h.ctx, churnOptions{Cluster: h.Cluster, Watcher: h.Attachments, Driver: h.driver.Name, Volumes: volumes, Nodes: nodes, Seed: uint64(n)})
	h.must(load.WaitCycles(h.ctx, volumes))
	for i := range n / 2 {
		way := i % 3
		h.toAttacher(way)
		calls := h.callers.callsOf("", h.driver.Backend.Books())
		term, cancel := context.WithTimeout(h.ctx, attacherTerm)
		if err := load.WaitCycles(term, volumes); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
		if way == byEdit {
			if more := h.callers.callsOf("", h.driver.Backend.Books()) - calls; more > 0 {
				t.Errorf("%d calls of the hub while the driver was paused", more)
			}
			h.settle("active")
		}
		h.toHub(i%2 == 1)
		h.must(load.WaitCycles(h.ctx, volumes))
	}
	h.checkEnd(load)
	books := h.driver.Backend.Books()
	for _, fault := range h.callers.hubFaults(books, h.killed) {
		t.Error("violation by the hub: ", fault)
	}
	hub, attacher := h.callers.takenOver("", books), h.callers.takenOver(csiAttacher, books)
	if hub == 0 || attacher == 0 {
		t.Error("one of them has never detached what the other one had attached")
	}
	t.Logf("%d handovers, %d cycles; the hub has made %d calls, and detached %d volumes that csi-attacher had attached; csi-attacher has made %d calls, and detached %d",
		n, load.Cycles(), h.callers.callsOf("", books), hub, h.callers.callsOf(csiAttacher, books), attacher)
	h.checkExit(h.hub.Process)
	h.waitHolder("anybody but the hub", func(holder string) bool { return holder == h.holder || holder == "" })
}
