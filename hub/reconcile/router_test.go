package reconcile

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const routedDriver = "routed.example.com"

// routedWorker is a Worker with an open route, whose cluster nobody watches.
type routedWorker struct {
	*Worker
	router   *Router
	session  Session // the latest one
	settings registry.Settings
}

// routed returns a Worker with an open route.
func routed(t testing.TB) *routedWorker {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	must(t, err)
	return routedOn(t, kube)
}

// routedOn is routed with an API server to read from and write to.
func routedOn(t testing.TB, kube attach.Kube) *routedWorker {
	t.Helper()
	return routedAs(t, kube, routedDriver)
}

// routedAs is routedOn for a driver of any name.
func routedAs(t testing.TB, kube attach.Kube, driver string) *routedWorker {
	t.Helper()
	cluster := cache.New(kube)
	d := &routedWorker{settings: registry.DefaultSettings()}
	logger := ktesting.NewLogger(t, ktesting.NewConfig())
	memory := NewMemory(logger, driver, cluster)
	d.router = &Router{Cluster: cluster, Elsewhere: func(va *storagev1.VolumeAttachment) {
		if va.Spec.Attacher == driver {
			memory.ObserveDeletion(attach.Driver{Name: driver, Capabilities: capabilitiesOf(d.session)}, cluster.Inputs(va))
		}
	}}
	d.Worker = New(d.options(logger, kube, cluster, memory, driver), lease.Always())
	d.router.Open(driver, d.Worker)
	return d
}

// options returns the Options of a Worker for a driver that can be called.
func (d *routedWorker) options(logger klog.Logger, kube attach.Kube, cluster *cache.Cluster, memory Memory, driver string) Options {
	return Options{
		Memory: memory, Driver: driver, Cluster: cluster, Kube: kube, Logger: logger, Metrics: status.NewMetrics().Driver(driver),
		Redactor: &attach.Redactor{Publications: memory.Table.Secrets},
		Settings: func() registry.Settings { return d.settings },
		Decider: func() attach.Driver {
			return attach.Driver{Name: driver, NoAttach: !cache.AttachRequired(cluster.CSIDriver(driver)), Capabilities: capabilitiesOf(d.session)}
		},
		Session: func() Session { return d.session },
		Away: func() error {
			if d.session == nil {
				return ErrDisconnected
			}
			return nil
		},
		ReadSecret: func(ctx context.Context, ref corev1.SecretReference) (*corev1.Secret, error) {
			return kube.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		},
		Failed:   func(error, status.Failure, time.Duration) {},
		Conflict: func(status.ForeignWriter) {},
	}
}

func capabilitiesOf(s Session) csiclient.Capabilities {
	if s == nil {
		return csiclient.Capabilities{}
	}
	return s.Info().Capabilities
}

// connectTo has a driver's latest session be another one.
func (d *routedWorker) connectTo(s Session) { d.session = s }

// stored returns a volume as its cache keeps it. The object stays the caller's own.
func stored(pv *corev1.PersistentVolume) *attach.Volume { return attach.VolumeOf(pv.DeepCopy()) }

func guardedVolume(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pv-protection", attach.Finalizer(routedDriver)}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: routedDriver, VolumeHandle: "handle"}}},
	}
	for _, edit := range edits {
		edit(pv)
	}
	return pv
}

// restore has the Table know what an object records.
func (d *routedWorker) restore(c *volume.Attachment, va *storagev1.VolumeAttachment) {
	if record, ok := d.Decider().Recorded(attach.Inputs{VolumeAttachment: va}); ok {
		d.Table.Restore(c, record)
	}
}

func routedAttachment(edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	volume := "pv"
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "uid-1", ResourceVersion: "10"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: routedDriver, NodeName: "node",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
	for _, edit := range edits {
		edit(va)
	}
	return va
}

func guardedAttachment(va *storagev1.VolumeAttachment) {
	va.Finalizers = []string{attach.Finalizer(routedDriver)}
	va.Annotations = map[string]string{attach.AnnotationNodeID: "id", attach.AnnotationVolumeHandle: "handle"}
	va.Status.Attached = true
}

func TestMissedDeletionIsNoticedAndNothingUnknownDoesHarm(t *testing.T) {
	d := routed(t)
	r := d.router.Handlers()
	for _, obj := range []any{nil, toolscache.DeletedFinalStateUnknown{Key: "va"}, toolscache.DeletedFinalStateUnknown{Key: "va", Obj: "odd"}, &attach.Volume{}} {
		r.Attachments.OnDelete(obj)
		r.Volumes.OnDelete(obj)
		r.Attachments.OnAdd(obj, false)
		r.Volumes.OnUpdate(obj, obj)
		r.Nodes.OnAdd(obj, false)
		r.Drivers.OnDelete(obj)
	}
	if all, _ := d.Queue.All(); len(all) > 0 {
		t.Fatalf("work out of nothing: %+v", all)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", DeletionTimestamp: &metav1.Time{}, Finalizers: []string{d.Table.Finalizer}}}
	must(t, cachetest.Put(d.Cluster, stored(pv)))
	// The object is of some time before: attached and guarded.
	r.Attachments.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "va", Obj: routedAttachment(guardedAttachment)})
	if _, ok := d.Table.Dangling(attach.Target{VolumeHandle: "handle", NodeID: "id"}); !ok {
		t.Error("a volume whose VolumeAttachment vanished unseen is not looked after")
	}
	if !d.Queue.Has(queue.FinalizerKey("pv")) {
		t.Error("the volume that waited for the VolumeAttachment to go is not looked at")
	}
}

func TestOnlyWhatDecidesIsAReasonToLookAgain(t *testing.T) {
	failed := &storagev1.VolumeError{Message: "m"}
	for _, tc := range []struct {
		name string
		edit func(*storagev1.VolumeAttachment)
		want bool
	}{
		{"nothing", func(*storagev1.VolumeAttachment) {}, false},
		{"attach error", func(va *storagev1.VolumeAttachment) { va.Status.AttachError = failed }, false},
		{"detach error", func(va *storagev1.VolumeAttachment) { va.Status.DetachError = failed }, false},
		{"managed fields", func(va *storagev1.VolumeAttachment) {
			va.Status.AttachError = failed
			va.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		}, false},
		{"label", func(va *storagev1.VolumeAttachment) { va.Labels = map[string]string{"l": "x"} }, false},
		{"annotation of others", func(va *storagev1.VolumeAttachment) { va.Annotations = map[string]string{"l": "x"} }, false},
		{"finalizer of others", func(va *storagev1.VolumeAttachment) { va.Finalizers = []string{"example.com/a"} }, false},
		{"deletion", func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{} }, true},
		{"own finalizer", func(va *storagev1.VolumeAttachment) { va.Finalizers = []string{attach.Finalizer(routedDriver)} }, true},
		{"node ID", func(va *storagev1.VolumeAttachment) { va.Annotations = map[string]string{attach.AnnotationNodeID: "x"} }, true},
		{"attached by somebody else", func(va *storagev1.VolumeAttachment) { va.Status.Attached = true }, true},
		{"another object of the name", func(va *storagev1.VolumeAttachment) { va.UID = types.UID("uid-2") }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := routed(t)
			d.Table.Open(routedAttachment())
			after := routedAttachment(tc.edit)
			after.ResourceVersion = "11"
			must(t, cachetest.Put(d.Cluster, after))
			d.router.onAttachment(nil, after, false)
			if got := d.Queue.Has(queue.AttachmentKey("va")); got != tc.want {
				t.Errorf("looked at again: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestLateEventsOfWhatIsGoneCauseNoSecondDetach(t *testing.T) {
	d := routed(t)
	dying := routedAttachment(guardedAttachment, func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	c := d.Table.Open(dying)
	d.restore(c, dying)
	// The finalizer was removed after a detach of this process; the cache has seen the end.
	run := volume.Run{Plan: attach.Plan{Operation: attach.Detaching, Record: attach.Record{Target: attach.NotedTarget(dying)}}}
	for _, kind := range []volume.EffectKind{volume.FindOwners, volume.Unpublish, volume.RemoveFinalizer} {
		effect := d.Table.NextEffect(c, run)
		if effect.Kind != kind {
			t.Fatalf("the next effect is %d, want %d", effect.Kind, kind)
		}
		d.Table.Start(c, run, effect)
		d.Table.Apply(c, &run, effect, volume.Outcome{Owner: volume.NoOwner})
	}
	d.Table.Saw(routedAttachment(func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp = dying.DeletionTimestamp }), true)
	d.router.onAttachment(nil, dying, false) // a handler that lags tells of an earlier state
	if e := d.start(t); e != nil {
		d.Table.Missing(e.Key.Name, "")
		d.Queue.End(e, queue.Finished) // what its worker does: the cache has no such object
	}
	d.router.onAttachment(dying, nil, false)
	if left := d.Table.AllDangling(); len(left) > 0 {
		t.Errorf("the volume that was detached is taken for attached: %+v", left)
	}
}

// connected is a session to a driver's process.
type connected struct {
	*csiclient.Session
}

func (connected) CallBegins(queue.Key)                           {}
func (connected) Answered()                                      {}
func (connected) UnansweredSince(func(queue.Key) bool) time.Time { return time.Time{} }
func (connected) Since() time.Time                               { return time.Time{} }

// steadySession is the part of a Session that these tests do not look at.
type steadySession struct{ Session }

func (steadySession) CallBegins(queue.Key)                           {}
func (steadySession) Answered()                                      {}
func (steadySession) Ended() context.Context                         { return context.Background() }
func (steadySession) UnansweredSince(func(queue.Key) bool) time.Time { return time.Time{} }
func (steadySession) Since() time.Time                               { return time.Time{} }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
