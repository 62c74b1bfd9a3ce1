package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// sidecarArgs are those of a csi-attacher with leader election, in which $(ADDRESS) stands
// for the socket.
const sidecarArgs = "--csi-address=$(ADDRESS) --timeout=30s --leader-election --leader-election-namespace=default --leader-election-lease-duration=3s " +
	"--leader-election-renew-deadline=2s --leader-election-retry-period=500ms --kube-api-qps=100 --kube-api-burst=200 --v=2"

// rivals are a hub and the sidecar of one driver.
type rivals struct {
	*scene
	driver, socket string
	backend        *fakecsi.Backend
	address        string // of the hub's HTTP API
	hub            *testbed.Process
	identity       string // of the hub, as it is in leases
	leases         *testbed.Watcher[*coordinationv1.Lease]
	sidecars       int    // how many have been started
	attacher       string // path of a csi-attacher that is the sidecar; empty: a hub in its place
	patient        bool   // the load deletes nothing before it is attached
}

// newRivals starts a hub that serves a driver. Calls of the driver take latency.
func newRivals(t *testing.T, prefix, settings string, latency time.Duration) *rivals {
	t.Helper()
	s := newScene(t, prefix)
	r := &rivals{scene: s, socket: filepath.Join(s.dir, "d"), address: freeAddress(t)}
	r.driver, r.backend = s.serve("d", r.socket)
	if err := r.backend.Set(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{
		fakecsi.ControllerPublishVolume: {Base: latency}, fakecsi.ControllerUnpublishVolume: {Base: latency}}}); err != nil {
		t.Fatal(err)
	}
	leases, err := testbed.WatchLeases(s.ctx, s.plane.Clientset(), "default", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leases.Close)
	r.leases = leases
	r.settle(settings)
	r.hub = s.startHub("--http-endpoint", r.address, "-v=2")
	return r
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// settle writes drivers.yaml with settings of the driver, such as "mode: active".
func (r *rivals) settle(settings string) {
	r.t.Helper()
	r.configure("drivers:\n  - {name: %s, endpoint: \"unix://%s\", %s}\n", r.driver, r.socket, settings)
	r.rewrite()
}

// startSidecar starts the sidecar of the driver.
func (r *rivals) startSidecar() *testbed.Process {
	r.t.Helper()
	r.sidecars++
	name, binary := fmt.Sprintf("sidecar%d", r.sidecars), r.attacher
	if binary == "" {
		binary = r.binary("./cmd/csi-attach-hub")
	}
	p, err := testbed.StartProcess(r.ctx, testbed.ProcessOptions{
		Name: name, Path: binary, LogPath: filepath.Join(r.dir, name+".log"),
		Args: append(strings.Fields(strings.ReplaceAll(sidecarArgs, "$(ADDRESS)", r.socket)), "--kubeconfig="+r.plane.Kubeconfig()),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	testbed.KillAtEnd(r.t, p)
	return p
}

// nodes makes n nodes and returns their names; their IDs are "id-" and the name.
func (r *rivals) nodes(n int) []string {
	r.t.Helper()
	var names []string
	for i := range n {
		node := fmt.Sprintf("%s-node%d", r.prefix, i)
		r.create(testbed.CSINode{Node: node, Drivers: map[string]string{r.driver: "id-" + node}})
		names = append(names, node)
	}
	return names
}

// startChurn begins a load.
func (r *rivals) startChurn(volumes int) *churn {
	r.t.Helper()
	return startChurn(r.ctx, churnOptions{Cluster: r.cluster, Watcher: r.watcher, Driver: r.driver,
		Volumes: volumes, Nodes: r.nodes(4), Prefix: r.prefix + "-v", Seed: 1, Patient: r.patient})
}

// cycle waits for more cycles of a load.
func (r *rivals) cycle(c *churn, more int) {
	r.t.Helper()
	if err := c.WaitCycles(r.ctx, more); err != nil {
		r.t.Fatal(err)
	}
}

// waitHolder waits until the driver's lease is held as it should be, and returns when
// that was seen.
func (r *rivals) waitHolder(what string, holds func(holder string) bool) time.Time {
	r.t.Helper()
	err := r.leases.WaitFor(r.ctx, "the lease held by "+what, func(all []*coordinationv1.Lease) bool {
		i := slices.IndexFunc(all, func(l *coordinationv1.Lease) bool { return l.Name == "external-attacher-leader-"+r.driver })
		return i >= 0 && all[i].Spec.HolderIdentity != nil && holds(*all[i].Spec.HolderIdentity)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return time.Now()
}

func (r *rivals) waitHub() time.Time {
	r.t.Helper()
	return r.waitHolder("the hub", func(holder string) bool { return holder == r.identity })
}

func (r *rivals) waitSidecar() time.Time {
	r.t.Helper()
	return r.waitHolder("the sidecar", func(holder string) bool { return holder != "" && holder != r.identity })
}

func (r *rivals) waitNobody() time.Time {
	r.t.Helper()
	return r.waitHolder("nobody", func(holder string) bool { return holder == "" })
}

// knowHub waits until the hub holds the lease for the first time.
func (r *rivals) knowHub() {
	r.t.Helper()
	r.waitHolder("the hub", func(holder string) bool { r.identity = holder; return holder != "" })
}

// get reads from the hub's API; false if it does not answer.
func (r *rivals) get(path string, into any) bool {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, "http://"+r.address+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	return true
}

// waitShown waits until the hub shows the driver as it should be, and returns what it
// shows. The API is to be asked: it tells no changes.
func (r *rivals) waitShown(what string, holds func(status.Driver) bool) status.Driver {
	r.t.Helper()
	var d status.Driver
	r.await(func() bool {
		d = status.Driver{}
		return r.get("/api/v1/drivers/"+r.driver, &d) && holds(d)
	}, func() string { return fmt.Sprintf("the driver was never shown %s: %+v", what, d) })
	return d
}

// await asks until it holds; what says what did not.
func (r *rivals) await(holds func() bool, what func() string) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-r.ctx.Done():
			r.t.Fatal(what())
		}
	}
}

func stateIs(state string) func(status.Driver) bool {
	return func(d status.Driver) bool { return d.State == state }
}

// checkSafe checks what holds whatever becomes of attachers.
func (r *rivals) checkSafe() {
	r.t.Helper()
	if err := r.backend.Books().Check(); err != nil {
		r.t.Error(err)
	}
}

// checkExact checks what holds when no call was cut off: no call failed, and no volume was
// published where it was published already, unless by a VolumeAttachment that vanished while
// that was done (kubernetes/kubernetes issue 124749) and came again under the same name.
func (r *rivals) checkExact() {
	r.t.Helper()
	vanished := 0
	logs, err := filepath.Glob(filepath.Join(r.dir, "*.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, log := range logs {
		data, err := os.ReadFile(log)
		if err != nil {
			r.t.Fatal(err)
		}
		vanished += bytes.Count(data, []byte("VolumeAttachment is gone while its volume is attached"))
	}
	b := r.backend.Books()
	for _, m := range []fakecsi.Method{fakecsi.ControllerPublishVolume, fakecsi.ControllerUnpublishVolume} {
		if book := b.Methods[m]; book.Codes[codes.OK.String()] != book.Begun {
			r.t.Errorf("%s: %+v, want all to succeed", m, book)
		}
	}
	if vain := b.Methods[fakecsi.ControllerPublishVolume].Unchanged; vain > vanished {
		r.t.Errorf("%d publishes of what was published, want %d at most: so often a VolumeAttachment vanished", vain, vanished)
	}
}

// checkEnd ends a load with each volume attached, checks that the driver has them
// where the objects say, and has them detached.
func (r *rivals) checkEnd(c *churn, volumes int) {
	r.t.Helper()
	settled, err := c.Settle(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	b := r.backend.Books()
	if len(settled) != volumes || len(b.Attached) != volumes {
		r.t.Errorf("%d volumes attached, %d in the driver's books, want %d", len(settled), len(b.Attached), volumes)
	}
	for _, va := range r.watcher.List() {
		if va.Spec.Attacher != r.driver {
			continue
		}
		if !va.Status.Attached || va.Status.AttachError != nil || va.Status.DetachError != nil || !attach.HasFinalizer(va.Finalizers, attach.Finalizer(r.driver)) {
			r.t.Errorf("%s is attached, its status is %+v, and its finalizers are %v", va.Name, va.Status, va.Finalizers)
		}
	}
	var all []testbed.Object
	for volume, node := range settled {
		if !b.IsAttached(volume, "id-"+node) || len(b.Attached[volume]) != 1 {
			r.t.Errorf("%s is to be on %s, the driver has it on %v", volume, node, b.Attached[volume])
		}
		all = append(all, testbed.VolumeAttachment{Name: volume + "." + node})
	}
	r.delete(all...)
	r.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	if b := r.backend.Books(); len(b.Attached) > 0 {
		r.t.Errorf("attached at the end: %v", b.Attached)
	}
}

// The environment variable HANDOVERS says how often (make handover).
func TestADriverIsHandedOverForthAndBackUnderLoad(t *testing.T) {
	const volumes = 12
	roundTrips := max(1, fromEnvironment(t, "HANDOVERS", 8)/2)
	r := newRivals(t, "handover", "mode: active", 20*time.Millisecond)
	r.allow(testTimeout + time.Duration(roundTrips)*30*time.Second)
	if r.attacher = os.Getenv("CSI_ATTACHER"); r.attacher != "" {
		r.patient = true // it releases no lease: each one has to run out
	}
	r.knowHub()
	load := r.startChurn(volumes)
	r.cycle(load, volumes)
	var toSidecar, toHub []time.Duration
	for i := range roundTrips {
		sidecar := r.startSidecar()
		if r.attacher == "" {
			logged(r.scene, sidecar, `state="WaitingForLease"`) // it stands by
		}
		began := time.Now()
		r.settle([]string{"mode: paused", "mode: observe"}[i%2])
		toSidecar = append(toSidecar, r.waitSidecar().Sub(began))
		r.cycle(load, volumes)

		r.settle("mode: active")
		r.waitShown("waiting for the lease", func(d status.Driver) bool {
			return d.State == "WaitingForLease" && strings.HasPrefix(d.Reason, "held by ")
		})
		began = time.Now()
		if err := sidecar.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		toHub = append(toHub, r.waitHub().Sub(began))
		r.cycle(load, volumes)
		if err := sidecar.Wait(r.ctx); err != nil && r.attacher == "" {
			t.Errorf("the sidecar did not end with exit code 0 on SIGTERM: %v", err)
		}
	}
	slices.Sort(toSidecar)
	slices.Sort(toHub)
	t.Logf("%d cycles; from the edit until the sidecar has the lease: median %v, longest %v; from SIGTERM until the hub has it: median %v, longest %v",
		load.Cycles(), toSidecar[roundTrips/2], toSidecar[roundTrips-1], toHub[roundTrips/2], toHub[roundTrips-1])

	r.checkEnd(load, volumes)
	r.checkSafe()
	if r.attacher == "" {
		r.checkExact()
	}
	if d := r.waitShown("served", stateIs("Ready")); d.ForeignWriter.VolumeAttachment != "" {
		t.Errorf("the one that let go of the lease is taken for somebody who does not care: %+v", d.ForeignWriter)
	}
	r.checkExit(r.hub)
	r.waitNobody()
}
