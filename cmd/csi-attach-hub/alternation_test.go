package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// alternationSettings are the hub's for the driver. What csi-attacher leaves attached is detached after two
	// listings.
	alternationSettings = "mode: active, timeout: 5s, retry: {initial: 100ms, max: 1s}, drift: {interval: 1s, unexpected: detach}"
	// alternationArgs are added to sidecarArgs.
	alternationArgs = " --timeout=5s --retry-interval-start=100ms --retry-interval-max=1s --reconcile-sync=2s"
	// attacherTerm is the longest that csi-attacher leads: it may not get on before a hub has detached what it left.
	attacherTerm = 4 * time.Second
)

// alternation hands a driver to and fro between a hub and the real csi-attacher: one leads, the other one
// stands by. The books tell their calls apart by the process that has made the connection.
type alternation struct {
	*rivals
	binary, kubeconfig string // of csi-attacher
	holder             string // identity of csi-attacher in leases
	callers            callers
	running            *testbed.Process // csi-attacher
	killed             []time.Time      // when hubs were killed
	ended              int              // times that csi-attacher has ended by itself
	lost               int              // VolumeAttachments that have lost their finalizer
	leftByHub, healed  int              // volumes that were attached without a VolumeAttachment
	longest            time.Duration    // from a takeover by the hub until it had detached them

	mu       sync.Mutex
	attached map[types.UID]bool // VolumeAttachments that ever were
}

// newAlternation starts a hub, which leads, and then csi-attacher.
func newAlternation(t *testing.T, prefix string, limit time.Duration) *alternation {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the books know the processes that call the driver on Linux only")
	}
	binary := testbed.CSIAttacher(t)
	a := &alternation{rivals: newRivals(t, prefix, alternationSettings, 20*time.Millisecond), binary: binary, callers: callers{}, attached: map[types.UID]bool{}}
	a.allow(limit)
	// What begins goes on when its caller is killed, as in a storage system.
	if err := a.backend.Set(fakecsi.Knobs{FinishAbandoned: new(true)}); err != nil {
		t.Fatal(err)
	}
	a.kubeconfig = a.asCSIAttacher()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	a.holder = regexp.MustCompile("[^a-zA-Z0-9-]").ReplaceAllString(host, "-") // as csi-lib-utils does
	w, err := testbed.WatchVolumeAttachments(a.ctx, a.plane.Clientset(), a.count)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	a.knowHub()
	a.startAttacher(false)
	return a
}

// count notes what becomes of a VolumeAttachment.
func (a *alternation) count(_, now *storagev1.VolumeAttachment) {
	if now != nil && now.Status.Attached && now.Spec.Attacher == a.driver {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.attached[now.UID] = true
	}
}

// startAttacher starts csi-attacher. With release it releases its lease on SIGTERM, after it has cancelled its
// calls; otherwise it ends at once, and its lease runs out.
func (a *alternation) startAttacher(release bool) {
	a.t.Helper()
	a.sidecars++
	name := fmt.Sprintf("csi-attacher%d", a.sidecars)
	args := strings.Fields(strings.ReplaceAll(sidecarArgs+alternationArgs, "$(ADDRESS)", a.socket))
	args = append(args, "--kubeconfig="+a.kubeconfig, fmt.Sprintf("--feature-gates=ReleaseLeaderElectionOnExit=%v", release))
	p, err := testbed.StartProcess(a.ctx, testbed.ProcessOptions{Name: name, Path: a.binary, LogPath: filepath.Join(a.dir, name+".log"), Args: args})
	if err != nil {
		a.t.Fatal(err)
	}
	testbed.KillAtEnd(a.t, p)
	a.running, a.callers[p.PID()] = p, csiAttacher
}

// toAttacher stops the hub, waits until csi-attacher leads, and starts a hub that stands by.
func (a *alternation) toAttacher(kill bool) {
	a.t.Helper()
	if kill {
		a.killed = append(a.killed, time.Now())
		a.hub.Kill()
	} else {
		a.checkExit(a.hub)
		for at, c := range a.withoutOwner() {
			if a.callers[c.Peer] == "" {
				a.leftByHub++
				a.t.Errorf("the hub has ended and left %s attached to %s without a VolumeAttachment%s", at.Volume, at.Node, a.callers.historyOf(a.backend.Books(), at.Volume, c.Start))
			}
		}
	}
	a.waitHolder("csi-attacher", func(holder string) bool { return holder == a.holder })
	a.hub = a.startHub("--http-endpoint", a.address, "-v=2")
}

// toHub stops csi-attacher, waits until the hub leads, starts another csi-attacher that stands by, and waits until
// the hub has detached what was left behind.
func (a *alternation) toHub(kill bool) {
	a.t.Helper()
	select {
	case <-a.running.Done(): // it has lost its lease on a busy machine
		a.ended++
	default:
	}
	if kill {
		a.running.Kill()
	} else if err := a.running.Stop(a.ctx, 30*time.Second); err != nil {
		a.t.Logf("csi-attacher ended on SIGTERM with: %v", err) // it does not handle SIGTERM unless it releases its lease
	}
	took := a.waitHolder("the hub", func(holder string) bool { return holder != a.holder && holder != "" })
	a.startAttacher(a.sidecars%2 == 1)
	left := a.withoutOwner()
	a.await(func() bool {
		now, owned := publications(a.backend.Books()), a.owned(a.watcher.List())
		for at, c := range left {
			if now[at].ID == c.ID && !owned[at] {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("the hub has never detached all of %+v", left) })
	if len(left) > 0 {
		a.healed += len(left)
		a.longest = max(a.longest, time.Since(took))
	}
}

// owned are the volumes and node IDs that VolumeAttachments ask for.
func (a *alternation) owned(all []*storagev1.VolumeAttachment) map[fakecsi.VolumeNode]bool {
	owned := map[fakecsi.VolumeNode]bool{}
	for _, va := range all {
		if va.Spec.Attacher == a.driver {
			owned[fakecsi.VolumeNode{Volume: *va.Spec.Source.PersistentVolumeName, Node: "id-" + va.Spec.NodeName}] = true
		}
	}
	return owned
}

// withoutOwner returns what is attached now and has no VolumeAttachment. The API server is asked between two
// looks at the books, as both change meanwhile.
func (a *alternation) withoutOwner() map[fakecsi.VolumeNode]fakecsi.Call {
	a.t.Helper()
	left := publications(a.backend.Books())
	list, err := a.plane.Clientset().StorageV1().VolumeAttachments().List(a.ctx, metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	var all []*storagev1.VolumeAttachment
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	owned, after := a.owned(all), publications(a.backend.Books())
	for at, c := range left {
		if owned[at] || after[at].ID != c.ID {
			delete(left, at)
		}
	}
	return left
}

// lose lets a VolumeAttachment that csi-attacher has attached vanish: its finalizer is removed by somebody else.
// csi-attacher leaves its volume attached.
func (a *alternation) lose(node string) {
	a.t.Helper()
	a.lost++
	name := fmt.Sprintf("%s-lost%d", a.prefix, a.lost)
	va := testbed.VolumeAttachment{Name: name, Driver: a.driver, Node: node, PersistentVolume: name}
	a.create(testbed.PersistentVolume{Name: name, Driver: a.driver})
	a.create(va)
	err := a.watcher.WaitForOne(a.ctx, "attached", name, func(now *storagev1.VolumeAttachment, exists bool) bool { return exists && now.Status.Attached })
	if err != nil {
		a.t.Fatal(err)
	}
	_, err = a.plane.Clientset().StorageV1().VolumeAttachments().Patch(a.ctx, name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.delete(va)
}

// checkVolumesGo deletes all PersistentVolumes and waits until their finalizers are gone.
func (a *alternation) checkVolumesGo(volumes int) {
	a.t.Helper()
	var all []testbed.Object
	for i := range volumes {
		all = append(all, testbed.PersistentVolume{Name: fmt.Sprintf("%s-v-%d", a.prefix, i)})
	}
	for i := range a.lost {
		all = append(all, testbed.PersistentVolume{Name: fmt.Sprintf("%s-lost%d", a.prefix, i+1)})
	}
	a.delete(all...)
	w, err := testbed.WatchPersistentVolumes(a.ctx, a.plane.Clientset(), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	defer w.Close()
	err = w.WaitFor(a.ctx, "no PersistentVolume left", func(all []*corev1.PersistentVolume) bool {
		for _, pv := range all {
			if strings.HasPrefix(pv.Name, a.prefix+"-") {
				return false
			}
		}
		return true
	})
	if err != nil {
		a.t.Error(err)
	}
}
