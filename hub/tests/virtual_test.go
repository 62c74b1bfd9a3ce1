package tests

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	dto "github.com/prometheus/client_model/go"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	eventrecord "k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/probes"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// virtualDriver is the driver of a virtual world.
const virtualDriver = "virtual.example.com"

// virtual is a hub whose hours take no time: API server and driver are in its memory,
// and clocks are those of a synctest bubble.
type virtual struct {
	t       *testing.T
	api     *fakekube.API
	kube    kubernetes.Interface
	cluster *testbed.Cluster
	backend *fakecsi.Backend
	driver  registry.Driver
	options hub.Options
	events  *eventrecord.FakeRecorder
	hub     *hub.Hub                 // the one that was started last
	updates chan<- registry.Snapshot // to that one
	health  *probes.Probes
	dials   int
	observe func(fakecsi.Event) // may be nil

	verbosity int             // of the logs of the hub that is started next
	log       ktesting.Buffer // of the hub that was started last
}

// inVirtualTime calls f with a virtual world that has no hub yet.
func inVirtualTime(t *testing.T, f func(v *virtual)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := &virtual{t: t}
		backend, err := fakecsi.New(fakecsi.Options{Name: virtualDriver, Observe: func(e fakecsi.Event) {
			if v.observe != nil {
				v.observe(e)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		api := fakekube.New()
		*v = virtual{t: t, api: api, kube: api.Client(), cluster: testbed.NewCluster(api.Client()), backend: backend,
			driver: registry.Driver{Name: virtualDriver, Endpoint: "tcp://127.0.0.1:9", Settings: registry.DefaultSettings()},
			events: eventrecord.NewFakeRecorder(1_000_000), health: new(probes.Probes), verbosity: 2}
		v.options = hub.Options{Kube: v.kube, Events: v.events, Metrics: status.NewMetrics(), Probes: v.health, Grace: 10 * time.Second,
			Connect: func(context.Context, registry.Driver) (hubdriver.Session, error) {
				v.dials++
				return newBackendSession(v.backend), nil
			}}
		f(v)
		synctest.Wait()
	})
}

// start runs a hub until the returned function is called, which blocks until it has ended.
func (v *virtual) start() (stop func()) {
	v.t.Helper()
	h, err := hub.New(v.options)
	if err != nil {
		v.t.Fatal(err)
	}
	v.hub = h
	logger := ktesting.NewLogger(v.t, ktesting.NewConfig(ktesting.Verbosity(v.verbosity), ktesting.BufferLogs(true)))
	v.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	ctx, cancel := context.WithCancel(klog.NewContext(v.t.Context(), logger))
	updates := make(chan registry.Snapshot, 1)
	updates <- registry.Snapshot{v.driver.Name: v.driver}
	v.updates = updates
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := h.Run(ctx, updates); err != nil {
			v.t.Errorf("the hub ended with %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	v.t.Cleanup(stop)
	return stop
}

// leased has the hub compete for the driver's lease.
func (v *virtual) leased() {
	v.t.Helper()
	leases, err := lease.New(lease.Options{Kube: v.kube, Identity: "hub", Namespace: "hub",
		Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second})
	if err != nil {
		v.t.Fatal(err)
	}
	v.options.Leases, v.options.LeaseNamespace, v.options.LeaseDuration = leases, "hub", 15*time.Second
	ctx, cancel := context.WithCancel(v.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := leases.Run(ctx); err != nil {
			v.t.Errorf("the leases ended with %v", err)
		}
	}()
	v.t.Cleanup(func() { cancel(); <-ended })
}

// holdLease has another process hold the driver's lease, until it is released.
func (v *virtual) holdLease(identity string) (release func()) {
	v.t.Helper()
	name := registry.LeaseName(virtualDriver)
	renewed, seconds := metav1.NewMicroTime(time.Now().Add(24*time.Hour)), int32(24*60*60)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "hub"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity, RenewTime: &renewed, AcquireTime: &renewed, LeaseDurationSeconds: &seconds}}
	l, err := v.kube.CoordinationV1().Leases("hub").Create(v.t.Context(), l, metav1.CreateOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	return func() {
		v.t.Helper()
		released := metav1.NowMicro()
		l.Spec.HolderIdentity, l.Spec.RenewTime = new(string), &released
		if _, err := v.kube.CoordinationV1().Leases("hub").Update(v.t.Context(), l, metav1.UpdateOptions{}); err != nil {
			v.t.Fatal(err)
		}
	}
}

// pass lets time pass, until all that can be done by then is done.
func (v *virtual) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (v *virtual) create(objects ...testbed.Object) {
	v.t.Helper()
	if err := v.cluster.Create(v.t.Context(), objects...); err != nil {
		v.t.Fatal(err)
	}
}

func (v *virtual) delete(objects ...testbed.Object) {
	v.t.Helper()
	if err := v.cluster.Delete(v.t.Context(), objects...); err != nil {
		v.t.Fatal(err)
	}
}

// register says which ID the driver has for a node, and makes the node if there is none.
func (v *virtual) register(node, id string) {
	v.t.Helper()
	if _, err := v.kube.CoreV1().Nodes().Get(v.t.Context(), node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		v.create(testbed.Node{Name: node})
	}
	n := testbed.CSINode{Node: node, Drivers: map[string]string{virtualDriver: id}}
	v.delete(n)
	v.create(n)
}

// volume makes a PersistentVolume with its name as the handle.
func (v *virtual) volume(name string, modes ...corev1.PersistentVolumeAccessMode) {
	v.t.Helper()
	v.create(testbed.PersistentVolume{Name: name, Driver: virtualDriver, Handle: name, AccessModes: modes})
}

// attachment is a VolumeAttachment of a volume, named after both.
func (v *virtual) attachment(volume, node string) testbed.VolumeAttachment {
	return testbed.VolumeAttachment{Name: volume + "-" + node, Driver: virtualDriver, Node: node, PersistentVolume: volume}
}

// get returns a VolumeAttachment, nil if there is none.
func (v *virtual) get(name string) *storagev1.VolumeAttachment {
	v.t.Helper()
	va, err := v.kube.StorageV1().VolumeAttachments().Get(v.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		v.t.Fatal(err)
	}
	return va
}

// hasVolume says whether there is a PersistentVolume.
func (v *virtual) hasVolume(name string) bool {
	v.t.Helper()
	_, err := v.kube.CoreV1().PersistentVolumes().Get(v.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		v.t.Fatal(err)
	}
	return err == nil
}

// stripFinalizers takes all finalizers from a VolumeAttachment, as people do.
func (v *virtual) stripFinalizers(name string) {
	v.t.Helper()
	_, err := v.kube.StorageV1().VolumeAttachments().Patch(v.t.Context(), name, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
}

// deleteWithoutDetach deletes a VolumeAttachment, and takes its finalizer when the driver has been asked
// to detach it.
func (v *virtual) deleteWithoutDetach(va testbed.VolumeAttachment) {
	v.t.Helper()
	v.delete(va)
	v.pass(time.Second)
	v.stripFinalizers(va.Name)
}

// turn changes how the driver behaves.
func (v *virtual) turn(k fakecsi.Knobs) {
	v.t.Helper()
	if err := v.backend.Set(k); err != nil {
		v.t.Fatal(err)
	}
}

// calls are how many calls of a method have ended, for a volume at a node ID.
func (v *virtual) calls(m fakecsi.Method, volume, nodeID string) int {
	n := 0
	for _, c := range v.backend.Books().CallsOf(m, volume) {
		if c.Node == nodeID {
			n++
		}
	}
	return n
}

// eventsWith returns the Events that were recorded since it was last asked and that
// contain a text.
func (v *virtual) eventsWith(text string) []string {
	var found []string
	for {
		select {
		case e := <-v.events.Events:
			if strings.Contains(e, text) {
				found = append(found, e)
			}
		default:
			return found
		}
	}
}

// metric is the sum of a metric's series that have all values of labels, in what the hub shows to Prometheus.
func (v *virtual) metric(name string, values ...string) float64 {
	v.t.Helper()
	families, err := v.options.Metrics.Gatherer(virtualSource{v.hub}).Gather()
	if err != nil {
		v.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				if missing := func(value string) bool {
					return !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value })
				}; !slices.ContainsFunc(values, missing) {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// virtualSource is a hub without a process around it.
type virtualSource struct{ *hub.Hub }

func (virtualSource) Overview() status.Overview { return status.Overview{} }

// backendSession is a session to a Backend without a connection.
type backendSession struct {
	*fakecsi.Backend
	info  csiclient.Info
	ended context.Context
	end   func()
}

func newBackendSession(b *fakecsi.Backend) *backendSession {
	s := &backendSession{Backend: b}
	s.ended, s.end = context.WithCancel(context.Background())
	s.info.Capabilities = csiclient.Capabilities{PublishUnpublish: true, PublishReadonly: true, ListPublishedNodes: true}
	return s
}

func (s *backendSession) Info() csiclient.Info   { return s.info }
func (s *backendSession) Ended() context.Context { return s.ended }
func (s *backendSession) Close()                 { s.end() }

func (s *backendSession) Probe(ctx context.Context) error {
	response, err := s.Backend.Probe(ctx, &csi.ProbeRequest{})
	if err == nil && response.GetReady() != nil && !response.GetReady().GetValue() {
		return csiclient.ErrNotReady
	}
	return err
}

func (s *backendSession) ListVolumes(ctx context.Context, _ int) (csiclient.Published, time.Duration, error) {
	began := time.Now()
	response, err := s.Backend.ListVolumes(ctx, &csi.ListVolumesRequest{})
	published := csiclient.Published{}
	for _, e := range response.GetEntries() {
		published[e.GetVolume().GetVolumeId()] = csiclient.PublishedNodes{IDs: slices.Clone(e.GetStatus().GetPublishedNodeIds())}
	}
	return published, time.Since(began), err
}

func TestVirtualHubAttachesAndDetaches(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.volume("v")
		v.start()
		va := v.attachment("v", "n")
		v.create(va)
		v.pass(time.Second)
		if got := v.get(va.Name); got == nil || !got.Status.Attached {
			t.Fatalf("not attached: %+v", got)
		}
		before := maps.Clone(v.api.Requests())
		v.delete(va)
		v.pass(time.Second)
		if v.get(va.Name) != nil || len(v.backend.Books().Attached) > 0 {
			t.Errorf("not detached: %v, requests %v", v.backend.Books().Attached, before)
		}
	})
}
