package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// requests returns how many requests the API server has counted.
func (w *world) requests() testbed.RequestCounts {
	w.t.Helper()
	counts, err := w.plane.Requests(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return counts
}

func (w *world) checkPatches(since testbed.RequestCounts, what string, volumes, attachments, statuses int) {
	w.t.Helper()
	want := []int{volumes, attachments, statuses}
	got := make([]int, 3)
	// The API server counts a request a moment after watches have seen its effect.
	w.poll("the patches of the "+what, func() (bool, any) {
		patches := w.requests().Since(since)
		for i, key := range []testbed.RequestKey{{Resource: "persistentvolumes"}, {Resource: "volumeattachments"}, {Resource: "volumeattachments", Subresource: "status"}} {
			got[i] = patches.Sum(func(k testbed.RequestKey) bool {
				return k.Verb == "PATCH" && k.Resource == key.Resource && k.Subresource == key.Subresource
			})
		}
		return got[0] >= want[0] && got[1] >= want[1] && got[2] >= want[2], got
	})
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %v patches of PersistentVolumes, VolumeAttachments and their statuses, want %v", what, got, want)
	}
}

func TestTenDriversAttachAndDetachWithTheFewestWritesAndCalls(t *testing.T) {
	const each = 10
	const all = manyDrivers * each
	w := newWorld(t)
	attachments := w.many(each)
	w.start()
	for i, round := range []string{"first", "second"} {
		before := w.requests()
		w.create(attachments...)
		w.waitAllAttached(all)
		w.checkPatches(before, round+" attach", all*(1-i), all, all) // a PersistentVolume keeps its finalizer
		w.checkBooks(w.eachHas(each))

		before = w.requests()
		w.delete(attachments...)
		w.waitNoneLeft()
		w.checkPatches(before, round+" detach", 0, all, 0)
		w.checkBooks(w.eachHas(0))
	}
	for name, backend := range w.backend {
		for _, method := range []fakecsi.Method{publish, unpublish} {
			if got := backend.Books().Methods[method].Begun; got != 2*each {
				t.Errorf("%s: %d calls of %s, want %d", name, got, method, 2*each)
			}
		}
	}
}

// Objects and statuses are patched apart, and others' finalizers are kept.
func TestObjectsAreLeftAsCsiAttacherLeavesThem(t *testing.T) {
	w := newWorld(t)
	driver, backend := w.driver("d", fakecsi.Options{})
	w.setKnobs(backend, fakecsi.Knobs{PublishContext: map[string]string{"devicePath": "/dev/x"}})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	got, own := w.waitAttached(va), attach.Finalizer(driver)
	if !slices.Equal(got.Finalizers, []string{own}) || got.Annotations["csi.alpha.kubernetes.io/node-id"] != "id-n" || got.Annotations["attach-hub/volume-handle"] != "v" {
		t.Errorf("finalizers %v, annotations %v, want %s, node ID id-n and volume handle v", got.Finalizers, got.Annotations, own)
	}
	if got.Status.AttachmentMetadata["devicePath"] != "/dev/x" || got.Status.AttachError != nil {
		t.Errorf("status %+v, want the publish context and no error", got.Status)
	}
	if pv := w.getVolume(va.PersistentVolume); !hasOwnFinalizer(pv, driver) {
		t.Errorf("finalizers of the volume %v, want %s among them", pv.Finalizers, own)
	}
	w.setFinalizers(va.Name, "example.com/first", own, "example.com/last")
	w.fence("fence", driver, va.Node)
	w.delete(va)
	got = w.waitForOne(va.Name, "detached", func(va *storagev1.VolumeAttachment) bool { return !va.Status.Attached })
	if !slices.Equal(got.Finalizers, []string{"example.com/first", "example.com/last"}) || got.Status.AttachmentMetadata != nil {
		t.Errorf("finalizers %v, status %+v, want those of others, and an empty status", got.Finalizers, got.Status)
	}
	w.stripFinalizers(va.Name)
}

// In the place of a sidecar the hub has to do with what the driver's manifest allows:
// the rules of csi-attacher's deploy/kubernetes/rbac.yaml know no CSIDriver objects.
func TestHubDoesWithThePermissionsOfCSIAttacher(t *testing.T) {
	w := newWorld(t)
	name := w.name("role")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}
	if _, err := w.kube.RbacV1().ClusterRoles().Create(w.ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.kube.RbacV1().ClusterRoleBindings().Create(w.ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := w.plane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: name}
	limited, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.options.Kube = limited
	driver, _ := w.driver("d", fakecsi.Options{})
	va := w.volume("v", driver, w.node("n", driver))
	w.start()
	w.create(va)
	w.waitAttached(va)
	w.delete(va)
	w.waitNoneLeft()
	w.checkBooks(nil)
}

func TestFailedAttachIsWrittenWithItsCodeAndTriedAgain(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: publish, Code: codes.Aborted, Message: "node is busy", Count: 1}}})
		v.driver.Retry.Initial = 10 * time.Second
		v.withNode("v")
		v.start()
		va := v.attach("v")[0]
		got := v.get(va.Name)
		if e := got.Status.AttachError; e == nil || e.ErrorCode == nil || *e.ErrorCode != int32(codes.Aborted) || !strings.Contains(e.Message, "node is busy") {
			t.Errorf("attachError %+v, want code 10 and the driver's words", e)
		}
		if !hasOwnFinalizer(got, virtualDriver) {
			t.Error("the finalizer is not there: an error does not prove that the volume is detached")
		}
		v.pass(time.Minute)
		v.wantAttached(va.Name)
	})
}

func TestInlineVolumeIsAttachedAndDetached(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.start()
		va := testbed.VolumeAttachment{Name: "v-n", Driver: virtualDriver, Node: "n", Inline: testbed.PersistentVolume{Driver: virtualDriver, Handle: "v"}.Inline()}
		v.create(va)
		v.pass(time.Second)
		v.wantAttached(va.Name)
		v.delete(va)
		v.pass(time.Second)
		v.wantGone(va.Name)
		v.wantCalls("v", "publish id-n", "unpublish id-n")
	})
}

func TestTrivialDriverIsMarkedAttachedWithoutCallOrFinalizer(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.incapable(0)
		v.volume("v")
		v.start()
		va := v.attach("v")[0] // there is no node either
		v.wantAttached(va.Name)
		if got := v.get(va.Name); len(got.Finalizers) > 0 || strings.Contains(v.log.String(), "record calls") {
			t.Errorf("finalizers %v, want none", got.Finalizers)
		}
		if health := v.health(); health.State != status.Fine {
			t.Errorf("health %+v", health)
		}
		v.delete(va)
		v.pass(time.Second)
		v.wantGone(va.Name)
		v.wantCalls("v")
		v.withNode("w") // a driver that begins to attach is served so
		v.hangUp()
		v.pass(time.Minute)
		v.attach("w")
		v.wantAttached("w-n")
		v.wantCalls("w", "publish id-n")
	})
}

func TestAttachmentsOfOtherAttachersAreLeftAlone(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.withNode("v")
		v.start()
		other := v.attachment("v", "n")
		other.Driver = "not-served.csi.example.com"
		v.create(other)
		v.pass(time.Hour)
		if n := v.patched() + v.api.Count("patch", "persistentvolumes"); n > 0 {
			t.Errorf("%d writes, want none", n)
		}
		v.wantCalls("v")
	})
}

func TestAttachGoesOnAtOnceWhenWhatWasMissingAppears(t *testing.T) {
	type row struct {
		first, then func(*virtual)
		missing     string
	}
	eachInVirtualTime(t, map[string]row{
		"the node":                {func(v *virtual) { v.volume("v") }, func(v *virtual) { v.register("n", "id-n") }, "csinode"},
		"the PersistentVolume":    {func(v *virtual) { v.register("n", "id-n") }, func(v *virtual) { v.volume("v") }, "persistentvolume"},
		"the driver on that node": {func(v *virtual) { v.volume("v"); v.create(testbed.CSINode{Node: "n"}) }, func(v *virtual) { v.register("n", "id-n") }, "csinode"},
	}, func(v *virtual, c row) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		c.first(v)
		v.start()
		v.attach("v")
		v.wantAttachError("v-n", c.missing)
		c.then(v)
		v.pass(time.Second)
		v.wantAttached("v-n")
	})
}

// The handle is that of the PersistentVolume in the cache, or else in a live read: the watch may be late.
func TestVolumeThatTheCacheDoesNotShowYetIsAttachedAtOnce(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.register("n", "id-n")
		v.start()
		v.pass(time.Second)
		v.api.HoldWatches("persistentvolumes")
		v.volume("v")
		v.create(v.attachment("v", "n"))
		v.pass(100 * time.Millisecond)
		v.wantAttached("v-n")
		v.api.ReleaseWatches("persistentvolumes")
	})
}

func TestReadonlyBlockAndMountGoToTheDriver(t *testing.T) {
	for _, knowsReadonly := range []bool{true, false} {
		inVirtualTime(t, func(v *virtual) {
			v.connect = func(_ context.Context, _ int, s *backendSession) error {
				s.info.Capabilities.PublishReadonly = knowsReadonly
				return nil
			}
			v.register("n", "id-n")
			v.create(testbed.PersistentVolume{Name: "readonly", Driver: virtualDriver, ReadOnly: true},
				testbed.PersistentVolume{Name: "block", Driver: virtualDriver, Block: true, FSType: "xfs", MountFlags: []string{"noatime"}},
				testbed.PersistentVolume{Name: "mount", Driver: virtualDriver, FSType: "xfs", MountFlags: []string{"noatime"}, Attributes: map[string]string{"pool": "fast"}})
			v.start()
			v.attach("readonly", "block", "mount")
			v.wantAttached("readonly-n", "block-n", "mount-n")
			if v.backend.LastPublish("readonly").GetReadonly() != knowsReadonly {
				t.Error("readonly was not asked of the driver that knows it, or was of the one that does not")
			}
			if c := v.backend.LastPublish("block").GetVolumeCapability(); c.GetBlock() == nil {
				t.Errorf("capability %v, want a block device", c)
			}
			r := v.backend.LastPublish("mount")
			if m := r.GetVolumeCapability().GetMount(); m.GetFsType() != "xfs" || !slices.Equal(m.GetMountFlags(), []string{"noatime"}) || r.GetVolumeContext()["pool"] != "fast" {
				t.Errorf("request %v, want xfs, noatime and the pool", r)
			}
		})
	}
}

func TestMigratedVolumeIsAttachedAndItsFinalizerGoesWithTheMigration(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		const driver = "pd.csi.storage.gke.io"
		v.driver.Name = driver
		v.create(testbed.CSINode{Node: "n", Drivers: map[string]string{driver: "id-n"}})
		var vas []testbed.VolumeAttachment
		for _, name := range []string{"back", "stays"} {
			pv := testbed.PersistentVolume{Name: name}.Build()
			pv.Labels = map[string]string{corev1.LabelTopologyZone: "us-central1-a"}
			pv.Annotations = map[string]string{attach.AnnotationMigratedTo: driver}
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name}}
			if _, err := v.kube.CoreV1().PersistentVolumes().Create(v.ctx, pv, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			vas = append(vas, testbed.VolumeAttachment{Name: name, Driver: driver, Node: "n", PersistentVolume: name})
		}
		v.start()
		v.createAll(vas)
		v.pass(time.Second)
		v.wantAttached("back", "stays")
		const handle = "projects/UNSPECIFIED/zones/us-central1-a/disks/back"
		if partition, ok := v.backend.LastPublish(handle).GetVolumeContext()["partition"]; !ok || partition != "" {
			t.Errorf("request %v, want one for %s with an empty partition", v.backend.LastPublish(handle), handle)
		}
		if got := v.get("back").Annotations[attach.AnnotationVolumeHandle]; got != handle {
			t.Errorf("noted handle %q, want %q", got, handle)
		}
		v.updateVolume("back", func(pv *corev1.PersistentVolume) { delete(pv.Annotations, attach.AnnotationMigratedTo) })
		v.pass(time.Second)
		if !hasOwnFinalizer(v.getVolume("back"), driver) {
			t.Error("the volume has lost its finalizer while it is attached")
		}
		v.deleteAll(vas)
		v.pass(time.Minute)
		v.wantGone("back", "stays")
		if hasOwnFinalizer(v.getVolume("back"), driver) || !hasOwnFinalizer(v.getVolume("stays"), driver) {
			t.Error("the volume that was handed back has its finalizer, or the one that is migrated still has lost it")
		}
	})
}

// beforeFirst has f called right before the first request of a kind takes effect, with
// the watch of VolumeAttachments held.
func (v *virtual) beforeFirst(want func(fakekube.Request) bool, f func()) {
	once := sync.OnceFunc(func() {
		v.api.HoldWatches("volumeattachments")
		f()
	})
	v.api.Intercept(func(r fakekube.Request) int {
		if want(r) {
			once()
		}
		return 0
	})
}

func TestAttachOfWhatIsNotWantedAnyMoreIsNoSuccess(t *testing.T) {
	remove := func(v *virtual) { v.stripFinalizers("v-n"); v.delete(v.attachment("v", "n")) }
	eachInVirtualTime(t, map[string]func(*virtual){
		"the VolumeAttachment vanishes during the publish": func(v *virtual) {
			v.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: publish, AfterEffect: true}}})
			v.attach("v")
			remove(v)
			v.pass(time.Second)
			v.setKnobs(healed)
		},
		"it vanishes after its first write": func(v *virtual) {
			v.slow(time.Second, patches("persistentvolumes"))
			v.create(v.attachment("v", "n"))
			v.pass(500 * time.Millisecond)
			remove(v)
		},
		// 120 calls in a minute, all counted as successes.
		"it vanishes before its status is written, and the watch is late": func(v *virtual) {
			v.beforeFirst(patches("volumeattachments/status", "v-n"), func() { remove(v) })
			v.create(v.attachment("v", "n"))
			v.pass(5 * time.Minute)
			v.api.ReleaseWatches("volumeattachments")
		},
		"no attach is required any more before the first write": func(v *virtual) {
			v.slow(time.Second, reads("secrets"))
			v.create(v.attachment("v", "n"))
			v.pass(500 * time.Millisecond)
			v.attachRequired(false)
		},
	}, func(v *virtual, happen func(*virtual)) {
		v.create(testbed.Secret{Name: "first", Data: map[string]string{"key": "one"}})
		v.register("n", "id-n")
		v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: secretRef("first")})
		v.attachRequired(true)
		v.start()
		v.pass(time.Second)
		happen(v)
		v.pass(5 * time.Minute)
		if n := v.metric("attach_hub_operations_total", "attach", "success"); n > 0 || strings.Contains(v.log.String(), "Attached volume") || v.begun(publish) > 1 {
			v.t.Errorf("%v attaches counted after %d publishes, want none, and none in the log", n, v.begun(publish))
		}
		v.wantNothingAttached()
	})
}

// stripping is an admission webhook that removes the annotation of the volume handle.
type stripping struct{ next http.RoundTripper }

func (s stripping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "volumeattachments") {
		body, _ := io.ReadAll(r.Body)
		var ops, kept []map[string]any
		_ = json.Unmarshal(body, &ops)
		for _, op := range ops {
			if value, ok := op["value"].(map[string]any); ok {
				delete(value, attach.AnnotationVolumeHandle)
			}
			if !strings.Contains(op["path"].(string), strings.ReplaceAll(attach.AnnotationVolumeHandle, "/", "~1")) {
				kept = append(kept, op)
			}
		}
		body, _ = json.Marshal(kept)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return s.next.RoundTrip(r)
}

// through returns a client on the API whose requests pass another transport first.
func (v *virtual) through(first http.RoundTripper) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://fakekube", Transport: first, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
}

func TestAttachWhoseNoteAWebhookRemovesBacksOffAndSaysSo(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.options.Kube = v.through(stripping{v.api})
		v.withNode("v")
		v.start()
		v.attach("v")
		v.pass(time.Hour)
		v.wantAttachError("v-n", "another client undoes")
		if n := v.patched(); n > 400 {
			t.Errorf("%d writes in an hour, want a growing pause", n)
		}
	})
}

func TestOnlyWhatMayHelpEndsTheBackoffOfAnAttach(t *testing.T) {
	change := func(v *virtual, change func(d *storagev1.CSIDriver)) {
		d, err := v.kube.StorageV1().CSIDrivers().Get(v.ctx, virtualDriver, metav1.GetOptions{})
		if err == nil {
			change(d)
			_, err = v.kube.StorageV1().CSIDrivers().Update(v.ctx, d, metav1.UpdateOptions{})
		}
		if err != nil {
			v.t.Fatal(err)
		}
	}
	type row struct {
		every  time.Duration
		happen func(v *virtual, i int)
		ends   bool
	}
	eachInVirtualTime(t, map[string]row{
		"nothing": {time.Minute, func(*virtual, int) {}, false},
		// As operators do that fight each other.
		"changes of the CSIDriver object": {5 * time.Second, func(v *virtual, i int) {
			change(v, func(d *storagev1.CSIDriver) {
				d.Annotations = map[string]string{"operator.example.com/hash": fmt.Sprint(i)}
			})
		}, false},
		"a CSIDriver object that is created again": {5 * time.Second, func(v *virtual, i int) {
			if i%2 == 0 {
				v.delete(testbed.CSIDriver{Name: virtualDriver})
			} else {
				v.create(testbed.CSIDriver{Name: virtualDriver})
			}
		}, false},
		// As under load.
		"a Probe that says not ready now and then": {4 * time.Second, func(v *virtual, i int) {
			notReady := i%2 == 0
			v.setKnobs(fakecsi.Knobs{NotReady: &notReady})
		}, false},
		"a new connection": {20 * time.Second, func(v *virtual, _ int) { v.hangUp() }, true},
		"attachRequired": {20 * time.Second, func(v *virtual, _ int) {
			change(v, func(d *storagev1.CSIDriver) { d.Spec.AttachRequired = new(bool) })
		}, true},
	}, func(v *virtual, c row) {
		v.driver.Drift.Interval, v.driver.Probe.Interval = 0, time.Second
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		v.create(testbed.CSIDriver{Name: virtualDriver})
		v.withNode("v")
		v.setKnobs(failing(publish, codes.Internal))
		v.start()
		v.create(v.attachment("v", "n"))
		v.pass(time.Minute)
		calls := func() int { return v.ended(publish) + v.begun(unpublish) } // attachRequired: false detaches what may be attached
		before, began := calls(), time.Now()
		for i := 0; time.Since(began) < 10*time.Minute; i++ {
			c.happen(v, i)
			v.pass(c.every)
		}
		if n := calls() - before; (n > 0) != c.ends {
			v.t.Errorf("%d calls in 10 minutes for an attach that fails and waits for an hour, want the end of its backoff: %v", n, c.ends)
		}
	})
}

func TestRecreatedAttachmentStartsWithAFreshBackoff(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		v.setKnobs(failingOnce(publish, codes.InvalidArgument))
		v.withNode("called")
		v.start()
		vas := v.attach("called", "early") // the second fails for want of its volume, before anything was written or called
		v.wantAttachError("called-n", "InvalidArgument")
		v.wantAttachError("early-n", "not found")
		v.deleteAll(vas)
		v.pass(time.Second)
		v.wantGone("called-n", "early-n")
		v.createAll(vas)
		v.pass(time.Second)
		v.wantAttached("called-n")
		v.wantAttachError("early-n", "not found")
	})
}

func TestMaxPerNodeLimitsCallsOfOneNode(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.MaxPerNode = 2
		v.setKnobs(fakecsi.AttachLatency(fakecsi.Latency{Base: 10 * time.Second}))
		v.register("n", "id-n")
		v.register("m", "id-m")
		v.start()
		var vas []testbed.VolumeAttachment
		for i := range 12 {
			name := fmt.Sprint("v", i)
			v.volume(name)
			vas = append(vas, v.attachment(name, []string{"n", "m"}[i/6]))
		}
		v.createAll(vas)
		for range 3 {
			v.pass(5 * time.Second)
			if n := v.backend.Books().AttachInFlight.Now; n != 4 {
				t.Errorf("%d calls in flight, want 2 for each of two nodes", n)
			}
			v.pass(5 * time.Second)
		}
		v.pass(time.Second)
		for _, va := range vas {
			v.wantAttached(va.Name)
		}
	})
}
