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
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// inUse has the kubelet of a node say which volumes it uses.
func (v *virtual) inUse(node string, names ...corev1.UniqueVolumeName) {
	v.t.Helper()
	n, err := v.kube.CoreV1().Nodes().Get(v.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		v.t.Fatal(err)
	}
	n.Status.VolumesInUse = names
	if _, err := v.kube.CoreV1().Nodes().UpdateStatus(v.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		v.t.Fatal(err)
	}
}

// A restore of etcd, or somebody, has removed the VolumeAttachments of Pods that run.
func TestVolumeInUseOnItsNodeIsReportedAndNotDetached(t *testing.T) {
	for name, c := range map[string]struct {
		use, free func(v *virtual)
		want      string
	}{
		"in use": {
			func(v *virtual) {
				v.inUse("n", "kubernetes.io/csi/other.example.com^w", "kubernetes.io/csi/"+virtualDriver+"^v")
			},
			func(v *virtual) { v.inUse("n", "kubernetes.io/csi/"+virtualDriver+"^w") }, "it is in use on node n"},
		"Node gone": {
			func(v *virtual) { v.delete(testbed.Node{Name: "n"}) },
			func(v *virtual) { v.create(testbed.Node{Name: "n"}) }, "whether it is in use on node n is not known: the Node object is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.unexpected(registry.UnexpectedDetach)
				v.dangling()
				c.use(v)
				v.start()
				v.pass(time.Hour)
				shown := v.dangled()
				if v.unpublishes() > 0 || len(shown) != 1 || !shown[0].ReportOnly || shown[0].LastError != c.want {
					t.Errorf("%d unpublishes, shown: %+v, want %q", v.unpublishes(), shown, c.want)
				}
				events := v.eventsWith("DriftDetected")
				if got := v.metric("attach_hub_drift_total"); got != 1 || len(events) != 1 || !strings.HasSuffix(events[0], "; not detaching it there because "+c.want) {
					t.Errorf("counted %v times, Events: %q", got, events)
				}
				if listings := v.backend.Books().Methods[fakecsi.ListVolumes].Ended; listings > 65 {
					t.Errorf("%d listings in an hour", listings)
				}
				c.free(v)
				v.pass(3 * time.Minute)
				if v.unpublishes() != 1 || len(v.dangled()) > 0 {
					t.Errorf("%d unpublishes when it is not in use any more, shown %+v", v.unpublishes(), v.dangled())
				}
			})
		})
	}
}

func TestVolumeThatBecomesUsedIsNotDetachedByALaterTry(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.dangling()
		v.turn(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerUnpublishVolume, Code: codes.Internal}}})
		v.start()
		v.pass(2 * time.Minute)
		failed := v.unpublishes()
		v.inUse("n", "kubernetes.io/csi/"+virtualDriver+"^v")
		v.turn(fakecsi.Knobs{ClearFaults: true})
		v.pass(10 * time.Minute)
		if shown := v.dangled(); failed == 0 || v.unpublishes() != failed || len(shown) != 1 || !shown[0].ReportOnly {
			t.Errorf("%d unpublishes before, %d after it, shown %+v", failed, v.unpublishes()-failed, shown)
		}
	})
}

// Each listing read the Node once for each volume that is in use there.
func TestNodeIsReadOnceForAllDanglingVolumesOfAListing(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.unexpected(registry.UnexpectedDetach)
		v.register("n", "id-n")
		var used []corev1.UniqueVolumeName
		for i := range 50 {
			name := fmt.Sprintf("v%02d", i)
			v.volume(name)
			v.attachByHand(name, "id-n")
			used = append(used, corev1.UniqueVolumeName("kubernetes.io/csi/"+virtualDriver+"^"+name))
		}
		v.inUse("n", used...)
		v.start()
		v.pass(10 * time.Minute)
		listings := func() int { return v.backend.Books().Methods[fakecsi.ListVolumes].Ended }
		before, listed := v.api.Count("get", "nodes"), listings()
		v.pass(time.Hour)
		if reads, listings := v.api.Count("get", "nodes")-before, listings()-listed; reads == 0 || reads > listings {
			t.Errorf("%d reads of one Node for %d listings, want one each", reads, listings)
		}
	})
}
