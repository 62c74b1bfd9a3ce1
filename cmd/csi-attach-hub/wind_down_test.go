package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// relay passes connections on to the socket of a driver and counts them.
type relay struct {
	t      *testing.T
	target string

	mu      sync.Mutex
	total   int
	open    int
	changed chan struct{} // closed at the next change
}

// newRelay listens on one socket for another one, until the test ends.
func newRelay(t *testing.T, socket, target string) *relay {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, target: target, changed: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.count(1, 1)
			running.Go(func() { r.pass(conn); r.count(0, -1) })
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return r
}

func (r *relay) count(total, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total, r.open = r.total+total, r.open+open
	close(r.changed)
	r.changed = make(chan struct{})
}

// pass copies in both directions until either side hangs up.
func (r *relay) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("unix", r.target)
	if err != nil {
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	copyUntilEnd := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil && !errors.Is(err, net.ErrClosed) {
			r.t.Log(err)
		}
		to.Close()
		from.Close()
	}
	both.Go(func() { copyUntilEnd(to, from) })
	both.Go(func() { copyUntilEnd(from, to) })
	both.Wait()
}

// connections returns how many there were, and how many of them are open.
func (r *relay) connections() (total, open int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total, r.open
}

// windDownScene is a hub that finds its drivers by their CSIDriver objects.
type windDownScene struct {
	*scene
	relays map[string]*relay
}

func newWindDownScene(t *testing.T, prefix string) *windDownScene {
	t.Helper()
	s := &windDownScene{newScene(t, prefix), map[string]*relay{}}
	s.configure(`discovery:
  csiDrivers:
    enabled: true
    endpointTemplate: unix://%[1]s/{driver}.sock
    allowedEndpoints: ["unix://%[1]s/*"]
drivers: []
`, s.folder("objects"))
	return s
}

// driver runs a driver where the template says that it is.
func (s *windDownScene) driver(name string) (driver string, backend *fakecsi.Backend) {
	s.t.Helper()
	driver, backend = s.serve(name, filepath.Join(s.dir, name))
	s.relays[driver] = newRelay(s.t, filepath.Join(s.dir, "objects", driver+".sock"), filepath.Join(s.dir, name))
	return driver, backend
}

// object makes a CSIDriver object for the time of the test.
func (s *windDownScene) object(o testbed.CSIDriver) {
	s.t.Helper()
	makeCSIDrivers(s.t, s.plane, o)
}

// makeCSIDrivers makes CSIDriver objects for the time of a test: the hubs of later tests discover what is left.
func makeCSIDrivers(t *testing.T, plane *testbed.ControlPlane, objects ...testbed.CSIDriver) {
	t.Helper()
	client := plane.Clientset().StorageV1().CSIDrivers()
	for _, o := range objects {
		if _, err := client.Create(t.Context(), o.Build(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// The context of the test has ended by now, and the test may have deleted it.
			if err := client.Delete(context.Background(), o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
}

// setAttachRequired makes the CSIDriver object of a driver anew: the API server lets
// nobody change the field.
func (s *windDownScene) setAttachRequired(driver string, required bool) {
	s.t.Helper()
	s.delete(testbed.CSIDriver{Name: driver})
	s.create(testbed.CSIDriver{Name: driver, NoAttach: !required})
}

// waitNotServed waits until no connection to a driver is open, of which there were some.
func (s *windDownScene) waitNotServed(driver string) {
	s.t.Helper()
	r := s.relays[driver]
	for {
		r.mu.Lock()
		total, open, changed := r.total, r.open, r.changed
		r.mu.Unlock()
		if total > 0 && open == 0 {
			return
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			s.t.Fatalf("%d connections to %s, and %d of them never ended: it is still served", total, driver, open)
		}
	}
}

// waitGone waits until all PersistentVolumes of a driver are gone.
func (s *windDownScene) waitGone(driver string) {
	s.t.Helper()
	watcher, err := testbed.WatchPersistentVolumes(s.ctx, s.plane.Clientset(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer watcher.Close()
	err = watcher.WaitFor(s.ctx, "the volumes gone", func(all []*corev1.PersistentVolume) bool {
		return !slices.ContainsFunc(all, func(pv *corev1.PersistentVolume) bool { return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver })
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// volumesOf returns the PersistentVolumes of VolumeAttachments.
func volumesOf(attachments []testbed.Object) []testbed.Object {
	var volumes []testbed.Object
	for _, o := range attachments {
		va := o.(testbed.VolumeAttachment)
		volumes = append(volumes, testbed.PersistentVolume{Name: va.PersistentVolume, Driver: va.Driver})
	}
	return volumes
}

// finished holds when there are n VolumeAttachments, of which none is attached or has a
// finalizer.
func finished(n int) func([]*storagev1.VolumeAttachment) bool {
	return func(all []*storagev1.VolumeAttachment) bool {
		return len(all) == n && !slices.ContainsFunc(all, func(va *storagev1.VolumeAttachment) bool {
			return va.Status.Attached || len(va.Finalizers) > 0
		})
	}
}

func (s *windDownScene) checkDetached(backend *fakecsi.Backend, unpublishes int) {
	s.t.Helper()
	b := backend.Books()
	if got := b.Methods[fakecsi.ControllerUnpublishVolume].Begun; len(b.Attached) > 0 || b.ViolationCount > 0 || got != unpublishes {
		s.t.Errorf("%s: attached %v, violations %+v, %d unpublishes, want %d", b.Driver, b.Attached, b.Violations, got, unpublishes)
	}
}

func TestDiscoveredDriverIsServedUntilNothingOfItIsLeftWhenAttachRequiredBecomesFalse(t *testing.T) {
	s := newWindDownScene(t, "winddown")
	driver, backend := s.driver("d")
	s.object(testbed.CSIDriver{Name: driver})
	hub := s.startHub()
	attachments := s.attachments(driver, 5)
	s.create(attachments...)
	s.waitFor("all attached", testbed.AllAttached(5))

	s.setAttachRequired(driver, false)
	s.waitFor("all detached, without finalizers", finished(5))
	s.checkDetached(backend, 5)
	s.waitNotServed(driver)

	// The finalizer that an attach puts on a PersistentVolume stays until that is deleted.
	s.delete(attachments...)
	s.delete(volumesOf(attachments)...)
	s.waitGone(driver)
	s.waitNotServed(driver)

	s.setAttachRequired(driver, true)
	s.create(volumesOf(attachments)...)
	s.create(attachments...)
	s.waitFor("attached again", testbed.AllAttached(5))
	s.delete(attachments...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	s.checkExit(hub)
}

func TestDriverWithAttachRequiredFalseOfWhichNothingIsLeftIsNotContacted(t *testing.T) {
	s := newWindDownScene(t, "nothingleft")
	good, _ := s.driver("good")
	s.object(testbed.CSIDriver{Name: good})
	byTemplate, backend := s.driver("template")
	s.object(testbed.CSIDriver{Name: byTemplate, NoAttach: true})
	outside := s.prefix + "-outside"
	s.object(testbed.CSIDriver{Name: outside, NoAttach: true, Annotations: map[string]string{"attach-hub/endpoint": "unix:///elsewhere"}})
	// Nobody has done anything for this one, and nobody is to.
	s.create(s.attachments(byTemplate, 1)...)
	hub := s.startHub()
	s.create(s.attachments(good, 1)...)
	s.waitFor("the one of the good driver attached", attachedAtLeast(1))
	s.checkExit(hub)
	if total, _ := s.relays[byTemplate].connections(); total > 0 || backend.Books().Methods[fakecsi.GetPluginInfo].Begun > 0 {
		t.Errorf("the driver was connected to %d times", total)
	}
	log, err := os.ReadFile(hub.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"Conflict", fmt.Sprintf("driver=%q", byTemplate), fmt.Sprintf("driver=%q", outside)} {
		if strings.Contains(string(log), words) {
			t.Errorf("the log has %q, though nothing is left of either driver:\n%s", words, log)
		}
	}
}

func TestHubThatIsStartedAfterAttachRequiredBecameFalseDetachesWhatIsLeft(t *testing.T) {
	s := newWindDownScene(t, "leftbehind")
	driver, backend := s.driver("d")
	s.object(testbed.CSIDriver{Name: driver})
	hub := s.startHub()
	s.create(s.attachments(driver, 5)...)
	s.waitFor("all attached", testbed.AllAttached(5))
	s.checkExit(hub)
	s.setAttachRequired(driver, false)
	hub = s.startHub()
	s.waitFor("all detached, without finalizers", finished(5))
	s.checkDetached(backend, 5)
	s.waitNotServed(driver)
	s.checkExit(hub)
}

func TestDiscoveredDriverIsServedWhileAVolumeOfItIsInUseAfterAttachRequiredBecameFalse(t *testing.T) {
	s := newWindDownScene(t, "inuse")
	driver, backend := s.driver("d")
	s.object(testbed.CSIDriver{Name: driver})
	hub := s.startHub()
	attachments := s.attachments(driver, 2)
	node := attachments[0].(testbed.VolumeAttachment).Node
	s.create(testbed.Node{Name: node})
	inUse := func(value string) {
		t.Helper()
		if _, err := s.plane.Clientset().CoreV1().Nodes().Patch(s.ctx, node, types.MergePatchType,
			[]byte(`{"status":{"volumesInUse":`+value+`}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	used := driver + "-0"
	inUse(`["kubernetes.io/csi/` + driver + `^` + used + `"]`)
	s.create(attachments...)
	s.waitFor("all attached", testbed.AllAttached(2))
	s.setAttachRequired(driver, false)
	s.waitFor("the unused one detached, the other one explained", func(all []*storagev1.VolumeAttachment) bool {
		return countAttached(all) == 1 && slices.ContainsFunc(all, func(va *storagev1.VolumeAttachment) bool {
			return va.Name == used && va.Status.Attached && va.Status.DetachError != nil && strings.Contains(va.Status.DetachError.Message, "in use")
		})
	})
	if total, open := s.relays[driver].connections(); total != 1 || open != 1 {
		t.Errorf("%d connections, %d of them open, want one: the driver was interrupted", total, open)
	}
	inUse(`null`)
	s.waitFor("both detached, without finalizers", finished(2))
	s.checkDetached(backend, 2)
	s.waitNotServed(driver)
	s.checkExit(hub)
}

func TestDiscoveredDriverIsServedUntilNothingOfItIsLeftWhenItsCSIDriverObjectIsDeleted(t *testing.T) {
	s := newWindDownScene(t, "objectgone")
	driver, backend := s.driver("d")
	s.object(testbed.CSIDriver{Name: driver})
	hub := s.startHub()
	attachments := s.attachments(driver, 6)
	s.create(attachments[:5]...)
	s.waitFor("five attached", testbed.AllAttached(5))
	s.delete(testbed.CSIDriver{Name: driver})
	// That a driver which came later is served tells that the deletion was seen.
	later, _ := s.driver("later")
	s.object(testbed.CSIDriver{Name: later})
	ofLater := s.attachments(later, 1)
	s.create(ofLater...)
	s.waitFor("the one of the later driver attached", testbed.AllAttached(6))
	// Without an object Kubernetes takes attachRequired for true.
	s.create(attachments[5:]...)
	s.waitFor("the sixth attached", testbed.AllAttached(7))
	if total, open := s.relays[driver].connections(); total != 1 || open != 1 {
		t.Errorf("%d connections, %d of them open, want one: the driver was interrupted", total, open)
	}
	s.delete(attachments...)
	s.delete(ofLater...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	s.checkDetached(backend, 6)
	s.waitNotServed(driver)
	s.checkExit(hub)
}
