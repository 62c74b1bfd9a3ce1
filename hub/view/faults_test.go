package view

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/cache/cachetest"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestWhatIsWrongWithTheObjectsOfAVolumeIsSaidWithoutAnOperation(t *testing.T) {
	just, longAgo := metav1.Now(), metav1.NewTime(time.Now().Add(-time.Hour)) // a fault counts at once
	attached := func(va *storagev1.VolumeAttachment) {
		va.Status.Attached = true
		va.Annotations = map[string]string{attach.AnnotationNodeID: "id-1", attach.AnnotationVolumeHandle: "vol-1"}
	}
	keptBy := func(since metav1.Time, finalizers ...string) func(*storagev1.VolumeAttachment) {
		return func(va *storagev1.VolumeAttachment) { va.DeletionTimestamp, va.Finalizers = &since, finalizers }
	}
	volume := func(handle string, deleted *metav1.Time) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-va", CreationTimestamp: just, DeletionTimestamp: deleted},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: handle}}}}
	}
	for name, tt := range map[string]struct {
		change func(*storagev1.VolumeAttachment)
		volume *corev1.PersistentVolume
		nodeID string
		state  status.AttachmentState
		want   diagnosis.Verdict
	}{
		"attached":                            {attached, volume("vol-1", nil), "id-1", status.Attached, ""},
		"its PersistentVolume is gone":        {attached, nil, "id-1", status.Attached, diagnosis.VolumeMissing},
		"its PersistentVolume was recreated":  {attached, volume("vol-2", nil), "id-1", status.Attached, diagnosis.VolumeRecreated},
		"its PersistentVolume is terminating": {attached, volume("vol-1", &just), "id-1", status.Attached, diagnosis.VolumeBeingDeleted},
		"its node has a new ID":               {attached, volume("vol-1", nil), "id-2", status.Attached, diagnosis.NodeIDChanged},
		"kept by another":                     {keptBy(just, "example.com/keep"), volume("vol-1", nil), "id-1", status.Waiting, diagnosis.FinalizerOfAnother},
		"kept by another too":                 {keptBy(longAgo, "example.com/keep", attach.Finalizer("d")), volume("vol-1", nil), "id-1", status.Stuck, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v, d := standby(t, attachmentOf("va", tt.change))
			if tt.volume != nil {
				if err := cachetest.Put(v.Cluster, tt.volume); err != nil {
					t.Fatal(err)
				}
			}
			if err := cachetest.Put(v.Cluster, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d", NodeID: tt.nodeID}}}}); err != nil {
				t.Fatal(err)
			}
			v.Served = func() map[string]func() Driver { return map[string]func() Driver{"d": func() Driver { return d }} }
			a := v.Attachments(status.AttachmentFilter{})[0]
			if a.State != tt.state || a.Fault.Verdict != tt.want {
				t.Errorf("%s, %+v", a.State, a.Fault)
			}
			in := status.DiagnosisInput{Attachment: a, Driver: &d.Driver, Now: time.Now()}
			if h := status.HealthOfAttachment(in); tt.want != "" && (h.State != status.Attention || h.Reasons[0].Verdict != tt.want) {
				t.Errorf("the health is %+v", h)
			}
		})
	}
}

// replicas are leases of which another replica of the hub holds all.
type replicas struct{}

func (replicas) Holder(lease.Name) (lease.Holder, bool) {
	return lease.Holder{Identity: "hub-1"}, true
}
func (replicas) Members() []lease.Member { return []lease.Member{{Identity: "hub-1"}} }

func TestVolumeThatAnotherReplicaServesShowsItsOwnError(t *testing.T) {
	now := time.Now()
	failed := func(va *storagev1.VolumeAttachment) {
		va.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Minute))
		va.Status.AttachError = &storagev1.VolumeError{Time: metav1.NewTime(now.Add(-12 * time.Second)), Message: "rpc error: code = Internal desc = array busy"}
	}
	created := func(va *storagev1.VolumeAttachment) {
		va.CreationTimestamp = metav1.NewTime(now.Add(-5 * time.Minute))
	}
	for name, tt := range map[string]struct {
		change func(*storagev1.VolumeAttachment)
		state  status.AttachmentState
		want   string
	}{
		"failed": {failed, status.Failing, "answered Internal to ControllerPublishVolume (served by hub-1) (12s ago): array busy"},
		"waits":  {created, status.Waiting, "waits: the driver is served by hub-1"},
	} {
		v, d := standby(t, attachmentOf("va", tt.change))
		v.Leases, v.LeaseOf = replicas{}, func(registry.Driver) lease.Name { return lease.Name{Name: "l"} }
		d.State, d.Up, d.Mode = status.StateWaitingForLease, true, "active"
		v.Served = func() map[string]func() Driver { return map[string]func() Driver{"d": func() Driver { return d }} }
		a, driver := v.Attachments(status.AttachmentFilter{})[0], v.Drivers()[0]
		h := status.HealthOfAttachment(status.DiagnosisInput{Attachment: a, Driver: &driver, Replicas: []string{"hub-0", "hub-1"}, Now: now})
		if a.State != tt.state || h.State != status.Attention || h.Reasons[0].Text(now) != tt.want {
			t.Errorf("%s: %s, %+v", name, a.State, h)
		}
	}
}

func TestSocketThatIsGoneWhileTheConnectionLivesIsAFault(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	d := Driver{Driver: status.Driver{Name: "d", State: status.StateReady, Up: true, Mode: "active", Lease: status.Lease{Mine: true}, Endpoint: "unix://" + socket}}
	if f := d.socketFault(); f.Verdict != "" {
		t.Errorf("%+v of a socket that is there", f)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	d.Fault = d.socketFault()
	if h := status.HealthOfDriver(d.Driver, nil, time.Now()); h.State != status.Attention || h.Reasons[0].Verdict != diagnosis.SocketMissing {
		t.Errorf("%+v", h)
	}
	if d.Up = false; d.socketFault().Verdict != "" {
		t.Error("a driver that is not connected has the fault too")
	}
}
