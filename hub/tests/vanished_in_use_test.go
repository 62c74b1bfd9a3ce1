package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// volumeInUse is the name by which a kubelet says that it uses volume v.
const volumeInUse = corev1.UniqueVolumeName("kubernetes.io/csi/" + virtualDriver + "^v")

// vanish removes VolumeAttachments by force, before the hub can put their finalizers back.
func (v *virtual) vanish(vas ...testbed.VolumeAttachment) {
	v.t.Helper()
	v.api.HoldWatches("volumeattachments")
	for _, va := range vas {
		v.stripFinalizers(va.Name)
		v.delete(va)
	}
	v.api.ReleaseWatches("volumeattachments")
}

// ready has the kubelet of a node say whether it is ready.
func (v *virtual) ready(node string, is corev1.ConditionStatus) {
	v.t.Helper()
	n, err := v.kube.CoreV1().Nodes().Get(v.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
	if _, err := v.kube.CoreV1().Nodes().UpdateStatus(v.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

const inUseText = `no VolumeAttachment has the volume there, but it is in use on node "n": it stays attached until it is not`

// Somebody has removed the VolumeAttachment of a Pod that runs by force, or etcd was restored from a backup.
func TestVolumeInUseIsNotDetachedWhenItsVolumeAttachmentVanishes(t *testing.T) {
	for name, vanish := range map[string]func(v *virtual, stop func(), va testbed.VolumeAttachment){
		"removed by force": func(v *virtual, _ func(), va testbed.VolumeAttachment) { v.vanish(va) },
		"missing in a new list, and the hub has made no call for it": func(v *virtual, stop func(), va testbed.VolumeAttachment) {
			stop()
			v.start()
			v.pass(time.Second)
			v.api.HoldWatches("volumeattachments")
			v.stripFinalizers(va.Name)
			v.delete(va)
			v.api.ForgetEvents()
			v.api.ReleaseWatches("volumeattachments")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				stop := v.start()
				va := v.attached()
				v.ready("n", corev1.ConditionTrue)
				v.inUse("n", volumeInUse)
				vanish(v, stop, va)
				v.pass(10 * time.Minute)
				if v.unpublishes() > 0 {
					t.Fatal("the volume was taken from the node that uses it")
				}
				if events := v.eventsWith("DetachFailed"); len(events) == 0 || !strings.HasSuffix(events[0], inUseText) {
					t.Errorf("Events: %q", events)
				}
				if shown := v.hub.Drivers()[0].Dangling; len(shown) != 1 || shown[0].LastError != inUseText || shown[0].NextTry.IsZero() {
					t.Errorf("shown: %+v", shown)
				}
				v.inUse("n")
				v.pass(v.driver.Retry.Max)
				if v.unpublishes() != 1 || v.danglingCount() > 0 {
					t.Errorf("%d unpublishes when it is not in use any more", v.unpublishes())
				}
			})
		})
	}
}

func TestVanishedVolumeIsDetachedUnlessTheNodeThatHasItsNodeIDUsesIt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(v *virtual)
		want   int
	}{
		"in use":     {func(v *virtual) { v.inUse("n", volumeInUse) }, 0},
		"another is": {func(v *virtual) { v.inUse("n", volumeInUse+"2") }, 1},
		"not ready":  {func(v *virtual) { v.inUse("n", volumeInUse); v.ready("n", corev1.ConditionUnknown) }, 1},
		"Node gone":  {func(v *virtual) { v.delete(testbed.Node{Name: "n"}) }, 1},
		"another machine has the name of the node, and uses the volume by another VolumeAttachment": {
			func(v *virtual) { v.inUse("n", volumeInUse); v.register("n", "id-new") }, 1},
		"another node has the node ID, and uses it": {
			func(v *virtual) { v.register("n", "id-new"); v.register("m", "id-n"); v.inUse("m", volumeInUse) }, 0},
		"the node plugin restarts": {
			func(v *virtual) { v.inUse("n", volumeInUse); v.delete(testbed.CSINode{Node: "n"}) }, 0},
		"the API server does not answer": {func(v *virtual) {
			v.api.Intercept(func(r fakekube.Request) int { return map[bool]int{true: 500}[r.Resource == "nodes"] })
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Drift.Interval = 0
				v.start()
				va := v.attached()
				c.change(v)
				v.pass(time.Second)
				v.vanish(va)
				v.pass(10 * time.Minute)
				if got := v.calls(fakecsi.ControllerUnpublishVolume, "v", "id-n"); got != c.want {
					t.Errorf("%d unpublishes, want %d", got, c.want)
				}
			})
		})
	}
}

// The driver may allow that, and two nodes would write to the volume.
func TestVolumeThatIsInUseWithoutAVolumeAttachmentIsNotAttachedElsewhere(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.start()
		va := v.attached()
		v.inUse("n", volumeInUse)
		v.vanish(va)
		v.register("m", "id-m")
		v.create(v.attachment("v", "m"))
		v.pass(time.Hour)
		if v.calls(fakecsi.ControllerPublishVolume, "v", "id-m") > 0 || v.unpublishes() > 0 {
			t.Errorf("calls: %+v", v.backend.Books().Calls)
		}
		v.inUse("n")
		v.pass(v.driver.Retry.Max)
		if got := v.get("v-m"); !got.Status.Attached {
			t.Errorf("%+v", got.Status)
		}
	})
}

// kube-controller-manager makes the VolumeAttachment of the running Pod again, with the same name. It waits, since the node
// counts as full.
func TestVolumeIsNotDetachedWhileAVolumeAttachmentAsksForItOnItsNode(t *testing.T) {
	inFullNode(t, func(v *virtual, vas []testbed.VolumeAttachment, _ *endpoint, _ func()) {
		v.api.HoldWatches("volumeattachments")
		v.stripFinalizers(vas[0].Name)
		v.delete(vas[0])
		v.create(vas[0])
		v.api.ReleaseWatches("volumeattachments")
		for range 12 * 60 {
			v.pass(time.Minute)
			if n := v.calls(fakecsi.ControllerUnpublishVolume, "v00", "id-n"); n > 0 {
				got := v.get(vas[0].Name)
				t.Fatalf("unpublished while VolumeAttachment %s asks for it there: %+v", got.Name, got.Status)
			}
		}
	})
}

// The hub hands the driver over, or ends.
func TestDrainDetachesNothingThatIsInUseAndReadsEachNodeOnce(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Retry.Initial, v.driver.Retry.Max = time.Hour, time.Hour
		stop := v.start()
		v.register("n", "id-n")
		var vas []testbed.VolumeAttachment
		var used []corev1.UniqueVolumeName
		for i := range 20 {
			name := fmt.Sprintf("v%d", i)
			v.volume(name)
			va := v.attachment(name, "n")
			v.create(va)
			vas = append(vas, va)
			if i%2 == 0 {
				used = append(used, corev1.UniqueVolumeName("kubernetes.io/csi/"+virtualDriver+"^"+name))
			}
		}
		v.pass(time.Second)
		v.inUse("n", used...)
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
		v.vanish(vas...)
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{ClearFaults: true})
		tried := v.unpublishes()
		reads := 0
		v.api.Intercept(func(r fakekube.Request) int {
			if r.Verb == "get" && r.Resource == "nodes" {
				reads++
			}
			return 0
		})
		stop()
		if got := v.unpublishes() - tried; got != 10 || reads != 1 {
			t.Errorf("%d unpublishes, want 10, by %d reads of the Node", got, reads)
		}
		for i := range vas {
			if name := fmt.Sprintf("v%d", i); v.backend.Books().IsAttached(name, "id-n") != (i%2 == 0) {
				t.Errorf("%s: attached %v", name, i%2 != 0)
			}
		}
	})
}

// etcd was restored, say, and the VolumeAttachments of all Pods of a node are missing.
func TestNodeThatUsesManyVanishedVolumesIsReadForAllOfThem(t *testing.T) {
	const volumes, minutes = 100, 60
	inVirtualTime(t, func(v *virtual) {
		v.start()
		v.register("n", "id-n")
		var vas []testbed.VolumeAttachment
		var used []corev1.UniqueVolumeName
		for i := range volumes {
			name := fmt.Sprintf("v%d", i)
			v.volume(name)
			vas = append(vas, v.attachment(name, "n"))
			v.create(vas[i])
			used = append(used, corev1.UniqueVolumeName("kubernetes.io/csi/"+virtualDriver+"^"+name))
		}
		v.pass(10 * time.Second)
		v.inUse("n", used...)
		v.vanish(vas...)
		v.pass(10 * time.Minute)
		nodes, own := v.api.Count("get", "nodes"), v.api.Count("get", "volumeattachments")
		v.pass(minutes * time.Minute)
		nodes, own = v.api.Count("get", "nodes")-nodes, v.api.Count("get", "volumeattachments")-own
		if v.unpublishes() > 0 || nodes > 5*minutes || own > 5*minutes {
			t.Errorf("%d unpublishes; %d reads of the Node and %d of VolumeAttachments in an hour", v.unpublishes(), nodes, own)
		}
		v.inUse("n")
		v.pass(3 * time.Minute)
		if n := v.unpublishes(); n != volumes {
			t.Errorf("%d unpublishes after the Pods have ended, want %d", n, volumes)
		}
	})
}
