package explain

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

const (
	driver   = "csi.example.com"
	identity = "hub-0_abc"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

func before(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// situation is Facts that a test can change with few words.
type situation struct {
	Facts
	v      *Volume
	va     *storagev1.VolumeAttachment
	pv     *corev1.PersistentVolume
	served *hubclient.Driver
	seen   *status.Attachment
}

// waiting is a VolumeAttachment that was made 40 s ago and is not attached, with all
// else in order: a hub works for the driver.
func waiting() *situation {
	name, pvName := "csi-1", "pv-1"
	s := &situation{
		va: &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: before(40 * time.Second)},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pvName}},
		},
		pv: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: pvName},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-1"}},
			},
		},
		served: &hubclient.Driver{Replica: "Pod h/hub-0", Leader: identity, Driver: status.Driver{
			Name: driver, State: "Ready", Up: true, Mode: "active", Endpoint: "unix:///csi/x.sock", Since: now.Add(-time.Hour), Workers: 20,
			Lease: status.Lease{Name: "external-attacher-leader-csi-example-com", Namespace: "h", Holder: identity, Mine: true},
		}},
		seen: &status.Attachment{Name: name, Driver: driver, State: status.Waiting, Operation: status.Attach},
	}
	s.Facts = Facts{Now: now, Question: Question{Kind: VolumeAttachment, Name: name}, Found: true,
		Volumes: []Volume{{
			VolumeName: pvName, NodeName: "node-1", Driver: driver,
			PersistentVolume: Present(s.pv),
			Attachment:       Present(s.va),
			Others:           Present(&[]storagev1.VolumeAttachment{}),
			Users:            Present(&[]corev1.Pod{}),
			Node:             Present(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{controllerAttaches: "true"}}}),
			CSINode:          Present(&storagev1.CSINode{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "id-1"}}}}),
			CSIDriver:        Absent[storagev1.CSIDriver](),
			Leases:           leases(lease("h", identity, 2*time.Second)),
			Served:           s.served, Seen: Present(s.seen),
		}},
		Hub: Hub{View: hubclient.View{
			Drivers: []hubclient.Driver{*s.served},
			Replicas: []hubclient.Replica{{Replica: "Pod h/hub-0", Overview: status.Overview{Identity: identity,
				Replicas: []status.Replica{{Identity: identity, Self: true}, {Identity: "hub-1_def"}}}}},
		}},
	}
	s.v = &s.Volumes[0]
	return s
}

// leases are those that were found in all namespaces.
func leases(all ...coordinationv1.Lease) Leases {
	return Leases{Name: "external-attacher-leader-csi-example-com", Where: "any namespace", All: Present(&all)}
}

func lease(namespace, holder string, renewedBefore time.Duration) coordinationv1.Lease {
	lasts, acquired, renewed := int32(15), metav1.NewMicroTime(now.Add(-time.Hour)), metav1.NewMicroTime(now.Add(-renewedBefore))
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "external-attacher-leader-csi-example-com"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, AcquireTime: &acquired, RenewTime: &renewed}}
}

// alone takes the hub away.
func (s *situation) alone() {
	s.Hub = Hub{Err: errors.New("connection refused")}
	s.v.Served, s.v.Seen = nil, Object[status.Attachment]{}
}

// notConfigured takes the driver from the hub.
func (s *situation) notConfigured() {
	s.Hub.View.Drivers, s.v.Served, s.v.Seen, s.v.Leases = nil, nil, Object[status.Attachment]{}, leases()
}

func (s *situation) conflict(reason string) {
	s.Hub.View.Replicas[0].Overview.Config.Conflicts = []status.Conflict{{Driver: driver, Loser: "CSIDriver csi.example.com", Reason: reason}}
}

// state puts the driver into one.
func (s *situation) state(state, reason string) {
	s.served.State, s.served.Reason, s.served.Up = state, reason, state == "Ready" || state == "Paused" || state == "WaitingForLease"
	s.served.Lease.Mine = s.served.Up && state != "WaitingForLease"
}

// failed notes an error in the status of the object.
func (s *situation) failed(message string, code int32) {
	e := &storagev1.VolumeError{Message: message, Time: before(12 * time.Second)}
	if code != 0 {
		e.ErrorCode = &code
	}
	s.va.Status.AttachError = e
	if s.va.DeletionTimestamp != nil {
		s.va.Status.AttachError, s.va.Status.DetachError = nil, e
	}
}

// deleted has it detached since 30 s.
func (s *situation) deleted() {
	t := before(30 * time.Second)
	s.va.DeletionTimestamp, s.va.Status.Attached = &t, true
	s.va.Finalizers = []string{attach.Finalizer(driver)}
	s.va.Annotations = map[string]string{attach.AnnotationNodeID: "id-1", attach.AnnotationVolumeHandle: "vol-1"}
	s.seen.Operation = status.Detach
}

// other adds a VolumeAttachment of the same volume for node-2.
func (s *situation) other(change func(*storagev1.VolumeAttachment)) {
	other := s.va.DeepCopy()
	other.Name, other.Spec.NodeName, other.Status.Attached = "csi-2", "node-2", true
	change(other)
	s.v.Others = Present(&[]storagev1.VolumeAttachment{*other})
}

// ofPod asks about a Pod instead, whose VolumeAttachment is not there yet.
func (s *situation) ofPod() {
	s.Question = Question{Kind: Pod, Namespace: "default", Name: "web"}
	s.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	s.v.Mount, s.v.Namespace, s.v.ClaimName = "data", "default", "claim-1"
	s.v.Claim = Present(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim-uid"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})
	s.v.Attachment, s.v.Seen = Absent[storagev1.VolumeAttachment](), Object[status.Attachment]{}
}

func noChange(*storagev1.VolumeAttachment) {}

func TestTheWalkStopsAtTheCauseAndNamesIt(t *testing.T) {
	leaving := func(va *storagev1.VolumeAttachment) {
		t := before(time.Minute)
		va.DeletionTimestamp = &t
		va.Status.DetachError = &storagev1.VolumeError{Message: "rpc error: code = Internal desc = array busy"}
	}
	var texts strings.Builder
	for _, tt := range []struct {
		name   string
		change func(*situation)
		want   diagnosis.Verdict
		words  string // in the stop's object, fact or advice, "|" between several
	}{
		{"driver not configured", (*situation).notConfigured, diagnosis.DriverNotConfigured, driver + "|drivers.yaml"},
		{"driver not configured, a sidecar works for it", func(s *situation) {
			s.notConfigured()
			s.v.Leases = leases(lease("kube-system", "sidecar-7", 2*time.Second))
		}, diagnosis.DriverNotConfigured, "sidecar-7"},
		{"a sidecar's error counts more than that it is one", func(s *situation) {
			s.notConfigured()
			s.v.Leases = leases(lease("kube-system", "sidecar-7", 2*time.Second))
			s.failed("rpc error: code = Internal desc = broken array", 13)
		}, diagnosis.BackendError, "Internal|broken array"},
		{"endpoint not allowed", func(s *situation) {
			s.notConfigured()
			s.conflict(`endpoint "unix:///x" is not allowed by discovery.csiDrivers.allowedEndpoints, nothing is contacted`)
		}, diagnosis.EndpointNotAllowed, "unix:///x|allowedEndpoints"},
		{"conflict", func(s *situation) { s.notConfigured(); s.conflict("is already the endpoint of another") }, diagnosis.DriverConflict, "already the endpoint"},
		{"socket missing", func(s *situation) {
			s.state("Connecting", "dial unix /csi/x.sock: connect: no such file or directory")
		}, diagnosis.SocketMissing, "unix:///csi/x.sock|no such file|mounted"},
		{"refused", func(s *situation) { s.state("Lost", "dial tcp 10.0.0.1:9443: connect: connection refused") }, diagnosis.CannotConnect, "refused|cannot be called at"},
		{"wrong name", func(s *situation) { s.state("NameMismatch", `reports the name "other"`) }, diagnosis.NameMismatch, `reports the name "other"`},
		{"not ready", func(s *situation) {
			s.state("Probing", "driver is not ready (Probe)")
		}, diagnosis.DriverNotReady, "not ready"},
		{"paused", func(s *situation) { s.served.Mode = "paused"; s.state("Paused", "its paused by `mode: paused`") }, diagnosis.DriverPaused, "mode: paused|active"},
		{"draining", func(s *situation) { s.state("Draining", "2 calls in flight") }, diagnosis.DriverDraining, "2 calls"},
		{"observed", func(s *situation) {
			s.served.Mode, s.served.Lease.Mine = "observe", false
			s.v.Leases = leases(lease("h", "sidecar-7", 2*time.Second))
		}, diagnosis.DriverObserved, "observe|sidecar-7"},
		{"lease held", func(s *situation) {
			s.state("WaitingForLease", "held by sidecar-7")
			s.v.Leases = leases(lease("h", "sidecar-7", 2*time.Second))
		}, diagnosis.LeaseHeld, "another attacher (sidecar-7) for 60m|last renewed 2s ago"},
		{"lease held by a replica that is silent", func(s *situation) {
			s.state("WaitingForLease", "held by hub-1_def")
			s.v.Leases = leases(lease("h", "hub-1_def", 2*time.Second))
		}, diagnosis.LeaseHeld, "hub-1_def|was not asked, or has not answered|without --server"},
		{"lease held by a replica that alone has the driver, and is silent", func(s *situation) {
			s.notConfigured()
			s.v.Leases = leases(lease("h", "hub-1_def", 2*time.Second))
		}, diagnosis.LeaseHeld, "hub-1_def|has not answered|configuration"},
		{"lease expired", func(s *situation) {
			s.state("WaitingForLease", "held by sidecar-7")
			s.v.Leases = leases(lease("h", "sidecar-7", time.Minute))
		}, diagnosis.LeaseExpired, "not renewed by its holder sidecar-7 for 60s|its duration is 15s"},
		{"lease free", func(s *situation) {
			s.state("WaitingForLease", "waiting for the other replicas to announce themselves")
			s.served.Lease.Holder, s.v.Leases = "", leases()
		}, diagnosis.LeaseFree, "h/external-attacher-leader-csi-example-com|to announce themselves"},
		{"lease expired by the clock of the hub", func(s *situation) {
			s.state("WaitingForLease", "no replica can call the driver")
			s.served.Lease.Holder, s.served.Lease.LastHolder, s.v.Leases = "", "sidecar-7", leases(lease("h", "sidecar-7", 2*time.Second))
		}, diagnosis.LeaseExpired, "not renewed by its holder sidecar-7 for 2s"},
		{"lease missing, and it may not be created", func(s *situation) {
			s.state("WaitingForLease", "the lease cannot be taken: lease ns/l does not exist, and the hub may not create it; create the lease, or remove lease.namespace")
			s.served.Lease.Holder, s.v.Leases = "", leases()
		}, diagnosis.LeaseMissing, "Create the lease"},
		{"no right on the lease", func(s *situation) {
			s.state("WaitingForLease", `the lease cannot be taken: leases.coordination.k8s.io "l" is forbidden: User "hub" cannot update resource "leases"`)
			s.served.Lease.Holder, s.v.Leases = "", leases()
		}, diagnosis.WriteForbidden, "Grant the hub get, list, watch and update on this lease, by name"},
		{"lease as the hub sees it", func(s *situation) {
			s.state("WaitingForLease", "")
			s.served.Lease.Holder, s.v.Leases = "sidecar-7", Leases{All: Unreadable[[]coordinationv1.Lease](errors.New("forbidden"))}
		}, diagnosis.LeaseHeld, "sidecar-7"},
		{"node without driver", func(s *situation) { s.v.CSINode.Value().Spec.Drivers[0].Name = "other" }, diagnosis.NodeWithoutDriver, "CSINode node-1|" + driver + "|DaemonSet"},
		{"node without CSI", func(s *situation) { s.v.CSINode = Absent[storagev1.CSINode]() }, diagnosis.NodeWithoutCSI, "CSINode node-1|kubelet"},
		{"node gone", func(s *situation) { s.v.CSINode, s.v.Node = Absent[storagev1.CSINode](), Absent[corev1.Node]() }, diagnosis.NodeMissing, "node-1|gone"},
		{"volume missing", func(s *situation) { s.v.PersistentVolume = Absent[corev1.PersistentVolume]() }, diagnosis.VolumeMissing, "pv-1"},
		{"volume being deleted", func(s *situation) {
			t := before(time.Minute)
			s.pv.DeletionTimestamp, s.pv.Finalizers = &t, []string{"kubernetes.io/pv-protection"}
		}, diagnosis.VolumeBeingDeleted, "pv-protection|pv-1"},
		{"secret missing", func(s *situation) { s.v.Secret = Secret{Namespace: "ns", Name: "creds", Object: Absent[struct{}]()} }, diagnosis.SecretMissing, "ns/creds|controllerPublishSecretRef"},
		{"secret forbidden", func(s *situation) {
			s.v.Secret = Secret{Namespace: "ns", Name: "creds", Object: Present(&struct{}{})}
			s.failed(`read secret ns/creds for the call: secrets "creds" is forbidden: User "hub" cannot get`, 0)
		}, diagnosis.SecretForbidden, "VolumeAttachment csi-1 the last try failed (12s ago)|get on secret ns/creds, and on no other"},
		{"secret was missing", func(s *situation) {
			s.v.Secret = Secret{Namespace: "ns", Name: "creds", Object: Present(&struct{}{})}
			s.failed(`read secret ns/creds for the call: secrets "creds" not found`, 0)
		}, diagnosis.SecretMissing, "the secret exists now"},
		{"the driver's own error about a secret is the driver's", func(s *situation) {
			s.failed("rpc error: code = PermissionDenied desc = read secret a/b for the call: forbidden", 7)
		}, diagnosis.BackendError, "PermissionDenied|credentials"},
		{"backend error", func(s *situation) { s.failed("rpc error: code = ResourceExhausted desc = too many volumes", 8) }, diagnosis.BackendError,
			"answered ResourceExhausted to ControllerPublishVolume (12s ago): too many volumes|allocatable"},
		{"backend error of which only the text is known", func(s *situation) { s.failed("rpc error: code = NotFound desc = no vol-1", 0) }, diagnosis.BackendError, "NotFound|no vol-1|volume handle"},
		{"backend error that the hub knows", func(s *situation) {
			s.seen.LastError = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
			s.failed("rpc error: code = Internal desc = older", 13)
		}, diagnosis.BackendError, "DeadlineExceeded|timeout"},
		{"backend error behind being stuck", func(s *situation) {
			s.failed("stuck: attach wanted since 2026-03-01T02:00:00Z, tried 40 times, the last error: rpc error: code = Aborted desc = pending", 10)
		}, diagnosis.BackendError, "Aborted|pending"},
		{"what only the status says", func(s *situation) { s.alone(); s.failed("the driver is not connected: dial refused", 0) }, diagnosis.CannotConnect, "dial refused"},
		{"an error that nobody knows", func(s *situation) { s.failed("something else", 0) }, diagnosis.LastError, "something else"},
		{"waiting for a detach", func(s *situation) { s.other(leaving) }, diagnosis.WaitingForDetach, "csi-2|node-2|array busy|explain csi-2"},
		{"waiting for a detach, as the hub says", func(s *situation) {
			s.seen.SetWaiting(status.Wait{Kind: status.WaitForDetach, Node: "node-3", VolumeAttachment: "csi-3"})
		}, diagnosis.WaitingForDetach, "from node node-3|explain csi-3"},
		{"waiting for a detach by what is gone from the cache, as the hub says", func(s *situation) {
			s.seen.SetWaiting(status.Wait{Kind: status.WaitForDetach, VolumeAttachment: "csi-3"})
		}, diagnosis.WaitingForDetach, "explain csi-3"},
		{"waiting for a detach of what was left attached, as the hub says", func(s *situation) {
			s.seen.SetWaiting(status.Wait{Kind: status.WaitForUnowned, NodeID: "id-3"})
		}, diagnosis.WaitingForDetach, "node ID id-3|left attached|csi-attach-hub status"},
		{"published elsewhere, by the driver's word", func(s *situation) {
			s.seen.LastError, s.seen.Elsewhere = "rpc error: code = FailedPrecondition desc = in use", []status.Elsewhere{{NodeID: "id-3", Node: "node-3", Asked: now.Add(-12 * time.Second)}}
		}, diagnosis.PublishedElsewhere, "id-3|node-3|no VolumeAttachment asks for it there (12s ago): in use|drift.unexpected"},
		{"published elsewhere, and about to be detached there", func(s *situation) {
			s.seen.LastError, s.seen.Elsewhere = "rpc error: code = FailedPrecondition desc = in use", []status.Elsewhere{{NodeID: "id-3", Node: "node-3", Detaching: true}}
		}, diagnosis.PublishedElsewhere, "Wait: the hub detaches the volume from node ID id-3 (node node-3) first"},
		{"attached elsewhere", func(s *situation) {
			s.other(noChange)
			s.v.Users = Present(&[]corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old"}, Spec: corev1.PodSpec{NodeName: "node-2"}}})
		}, diagnosis.AttachedElsewhere, "node-2|Multi-Attach|default/old"},
		{"attached elsewhere is fine for many", func(s *situation) {
			s.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
			s.other(noChange)
		}, diagnosis.NoReasonKnown, ""},
		{"call in flight", func(s *situation) {
			s.seen.State, s.served.Settings.Timeout = status.Attaching, status.Duration(2*time.Minute)
		}, diagnosis.CallInFlight, "2m"},
		{"queued", func(s *situation) {
			s.seen.SetWaiting(status.Wait{Kind: status.WaitForWorker})
			s.served.Busy = 20
		}, diagnosis.Queued, "a worker of the driver|20 of 20"},
		{"just asked", func(*situation) {}, diagnosis.NoReasonKnown, driver},

		{"no hub: nobody has served it", func(s *situation) { s.alone(); s.v.Leases = leases() }, diagnosis.LeaseMissing, "any namespace|" + driver},
		{"no hub: its holder has died", func(s *situation) {
			s.alone()
			s.v.Leases = leases(lease("h", identity, time.Hour))
		}, diagnosis.LeaseExpired, identity},
		{"no hub: nobody holds it", func(s *situation) { s.alone(); s.v.Leases = leases(lease("h", "", time.Hour)) }, diagnosis.LeaseFree, ""},
		{"no hub: the last error is in the object", func(s *situation) {
			s.alone()
			s.v.Leases = leases()
			s.failed("rpc error: code = Internal desc = broken", 13)
		}, diagnosis.BackendError, "broken"},
		{"no hub: what the node lacks", func(s *situation) { s.alone(); s.v.CSINode = Absent[storagev1.CSINode]() }, diagnosis.NodeWithoutCSI, ""},
		{"no hub, no reason", (*situation).alone, diagnosis.NoReasonKnown, ""},

		{"detach: the driver's error", func(s *situation) { s.deleted(); s.failed("rpc error: code = Internal desc = busy", 13) }, diagnosis.BackendError, "ControllerUnpublishVolume|busy"},
		{"detach: running", func(s *situation) { s.deleted(); s.seen.State = status.Detaching }, diagnosis.CallInFlight, ""},
		{"detach: waiting", (*situation).deleted, diagnosis.BeingDetached, "ControllerUnpublishVolume"},
		{"detach: the socket is missing", func(s *situation) {
			s.deleted()
			s.state("Lost", "dial unix: connect: no such file or directory")
		}, diagnosis.SocketMissing, ""},
		{"detach: somebody else's finalizer", func(s *situation) { s.deleted(); s.va.Finalizers = []string{"example.com/keep"} }, diagnosis.FinalizerOfAnother, "example.com/keep"},
		{"detach: gone any moment", func(s *situation) { s.deleted(); s.va.Finalizers = nil }, diagnosis.FinalizerOfAnother, "about to be removed"},
		{"detach: neither volume nor handle", func(s *situation) {
			s.deleted()
			s.v.PersistentVolume, s.va.Annotations[attach.AnnotationVolumeHandle] = Absent[corev1.PersistentVolume](), ""
		}, diagnosis.VolumeMissing, "same name and handle"},
		{"detach: the volume is gone, its handle is known", func(s *situation) { s.deleted(); s.v.PersistentVolume = Absent[corev1.PersistentVolume]() }, diagnosis.BeingDetached, ""},
		{"detach: the node is gone, its ID is known", func(s *situation) {
			s.deleted()
			s.v.CSINode, s.v.Node = Absent[storagev1.CSINode](), Absent[corev1.Node]()
		}, diagnosis.BeingDetached, ""},

		{"pod: not asked yet", (*situation).ofPod, diagnosis.NotAskedYet, "node-1|kube-controller-manager"},
		{"pod: not scheduled", func(s *situation) {
			s.ofPod()
			s.Pod.Spec.NodeName, s.v.NodeName = "", ""
			s.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
		}, diagnosis.PodNotScheduled, "0/3 nodes|scheduler"},
		{"pod: claim missing", func(s *situation) { s.ofPod(); s.v.Claim = Absent[corev1.PersistentVolumeClaim]() }, diagnosis.ClaimMissing, "default/claim-1"},
		{"pod: claim not bound", func(s *situation) {
			s.ofPod()
			class := "fast"
			s.v.Claim.Value().Status.Phase, s.v.Claim.Value().Spec.StorageClassName = corev1.ClaimPending, &class
		}, diagnosis.ClaimNotBound, "Pending|fast|provisioner"},
		{"pod: claim lost", func(s *situation) { s.ofPod(); s.v.Claim.Value().Status.Phase = corev1.ClaimLost }, diagnosis.ClaimNotBound, "Lost"},
		{"pod: volume missing", func(s *situation) { s.ofPod(); s.v.PersistentVolume = Absent[corev1.PersistentVolume]() }, diagnosis.VolumeMissing, "pv-1"},
		{"pod: volume of another claim", func(s *situation) {
			s.ofPod()
			s.pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "was", UID: "another"}
		}, diagnosis.VolumeOfAnother, "default/was"},
		{"pod: not CSI", func(s *situation) { s.ofPod(); s.v.Driver, s.pv.Spec.CSI = "", nil }, diagnosis.VolumeNotCSI, "pv-1"},
		{"pod: attached elsewhere", func(s *situation) { s.ofPod(); s.other(noChange) }, diagnosis.AttachedElsewhere, "node-2"},
		{"pod: waits for a detach", func(s *situation) { s.ofPod(); s.other(leaving) }, diagnosis.WaitingForDetach, "node-2"},
		{"pod: its node is gone", func(s *situation) { s.ofPod(); s.v.Node = Absent[corev1.Node]() }, diagnosis.NodeMissing, "node-1"},
		{"pod: the kubelet attaches", func(s *situation) { s.ofPod(); s.v.Node.Value().Annotations = nil }, diagnosis.KubeletAttaches, "enableControllerAttachDetach"},

		{"volume: nobody wants it", func(s *situation) {
			s.ofPod()
			s.Pod, s.v.NodeName, s.Question = nil, "", Question{Kind: PersistentVolume, Name: "pv-1"}
		}, diagnosis.NotWanted, "pv-1"},
		{"volume: its user has no node", func(s *situation) {
			s.ofPod()
			s.Pod, s.v.NodeName, s.Question = nil, "", Question{Kind: PersistentVolume, Name: "pv-1"}
			s.v.Users = Present(&[]corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}})
		}, diagnosis.PodNotScheduled, "default/web"},
		{"volume: deleted and unused", func(s *situation) {
			s.ofPod()
			s.Pod, s.v.NodeName = nil, ""
			t := before(time.Minute)
			s.pv.DeletionTimestamp, s.pv.Finalizers = &t, []string{"external-attacher/csi-example-com"}
		}, diagnosis.VolumeBeingDeleted, "external-attacher/csi-example-com"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := waiting()
			tt.change(s)
			r := Explain(s.Facts)
			if r.Result != Waiting || r.Result.ExitCode() != 1 || len(r.Volumes) != 1 || r.Volumes[0].Stop == nil {
				t.Fatalf("it is %s, want a stop and waiting:\n%s", r.Result, r.Text())
			}
			stop := *r.Volumes[0].Stop
			if stop.Verdict != tt.want {
				t.Errorf("stops at %s, want %s:\n%s", stop.Verdict, tt.want, r.Text())
			}
			for word := range strings.SplitSeq(tt.words, "|") {
				if text := stop.Object + " " + stop.Fact + " " + stop.Next; !strings.Contains(text, word) {
					t.Errorf("%q is not in %q", word, text)
				}
			}
			if stop.Object == "" || stop.Fact == "" || stop.Next == "" {
				t.Errorf("a verdict needs object, fact and next step: %+v", stop)
			}
			if first := []rune(stop.Next)[0]; !unicode.IsUpper(first) || !strings.HasSuffix(stop.Next, ".") {
				t.Errorf("%q is not an imperative with a full stop", stop.Next)
			}
			fmt.Fprintf(&texts, "# %s: %s\n%s: %s\n-> %s\n\n", tt.name, stop.Verdict, stop.Object, stop.Fact, stop.Next)
		})
	}
	golden(t, "stops", texts.String())
}

// Texts of whole reports, as a terminal shows them.
func TestReportsReadWell(t *testing.T) {
	failing := func(s *situation) {
		s.seen.State, s.seen.Tries, s.seen.NextTry = status.Failing, 7, now.Add(7*time.Second)
		s.failed("rpc error: code = ResourceExhausted desc = attachment limit of instance i-0a1 exceeded", 8)
	}
	asAbout := func(s *situation, kind Kind, name string) {
		s.Question, s.Subject = Question{Kind: kind, Name: name}, &Volume{Driver: driver, Served: s.served, Leases: s.v.Leases, CSIDriver: s.v.CSIDriver}
		if kind == Node {
			s.Subject = &Volume{NodeName: name, Node: s.v.Node, CSINode: s.v.CSINode}
		}
		s.v.Health, s.Listed = status.Broken, Present(&[]storagev1.VolumeAttachment{*s.va})
	}
	for name, change := range map[string]func(*situation){
		"failing": failing,
		"hanging": func(s *situation) {
			failing(s)
			s.seen.State, s.seen.Call = status.Attaching, status.Call{Method: "ControllerPublishVolume", Since: now.Add(-66 * time.Second)}
			s.served.Settings.Timeout = status.Duration(2 * time.Minute)
		},
		"attached":  func(s *situation) { s.va.Status.Attached = true },
		"not-found": func(s *situation) { s.Found = false },
		"no-hub":    (*situation).alone,
		"driver": func(s *situation) {
			failing(s)
			asAbout(s, Driver, driver)
			s.state("Lost", "dial unix /csi/x.sock: connect: connection refused")
			s.served.DownSince, s.served.Waiters = now.Add(-8*time.Minute-12*time.Second), []string{"default/web-0", "default/web-1"}
			s.served.Lanes = []status.Lane{{Operation: status.Attach, Queued: 2, Stuck: 1, StuckSince: now.Add(-20 * time.Minute), OldestSince: now.Add(-20 * time.Minute)}}
			s.served.Health = status.HealthOfDriver(s.served.Driver, s.Hub.View.Members(), now)
		},
		"driver-unserved": func(s *situation) {
			s.notConfigured()
			s.served = nil
			asAbout(s, Driver, driver)
		},
		"node": func(s *situation) { failing(s); asAbout(s, Node, "node-1") },
	} {
		t.Run(name, func(t *testing.T) {
			s := waiting()
			change(s)
			golden(t, name, Explain(s.Facts).Text())
		})
	}
}

func TestAttachedAndWhatNeedsNoAttachingEndWithZero(t *testing.T) {
	no := false
	noAttach := func(s *situation) {
		s.v.CSIDriver = Present(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	}
	for _, tt := range []struct {
		name   string
		change func(*situation)
		note   diagnosis.Verdict
	}{
		{"attached", func(s *situation) { s.va.Status.Attached = true }, ""},
		{"attached, no hub", func(s *situation) { s.va.Status.Attached = true; s.alone() }, ""},
		{"attached, and the node is gone", func(s *situation) { s.va.Status.Attached, s.v.Node = true, Absent[corev1.Node]() }, diagnosis.NodeMissing},
		{"attached, and the finalizer was taken", func(s *situation) {
			s.va.Status.Attached, s.va.Annotations = true, map[string]string{attach.AnnotationNodeID: "id-1"}
		}, diagnosis.FinalizerOfAnother},
		{"attached to a node that is not ready", func(s *situation) {
			s.va.Status.Attached = true
			s.v.Node.Value().Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "kubelet stopped"}}
		}, diagnosis.NodeNotReady},
		{"attach not required", func(s *situation) { s.ofPod(); noAttach(s) }, ""},
		{"attach not required, and yet asked for", noAttach, diagnosis.AttachNotRequired},
		{"inline volume", func(s *situation) {
			s.ofPod()
			s.Volumes = []Volume{{Mount: "tmp", Inline: "secrets-store.csi.k8s.io"}}
		}, ""},
		{"pod without volumes", func(s *situation) { s.ofPod(); s.Volumes = nil }, ""},
		{"pod that has ended", func(s *situation) { s.ofPod(); s.Pod.Status.Phase = corev1.PodSucceeded }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := waiting()
			tt.change(s)
			r := Explain(s.Facts)
			if r.Result != Attached || r.Result.ExitCode() != 0 {
				t.Errorf("it is %s, want attached:\n%s", r.Result, r.Text())
			}
			if tt.note != "" && !noted(r, tt.note) {
				t.Errorf("no note %s:\n%s", tt.note, r.Text())
			}
		})
	}
}

func noted(r Report, v diagnosis.Verdict) bool {
	for _, volume := range r.Volumes {
		if slices.ContainsFunc(volume.Notes, func(f Finding) bool { return f.Verdict == v }) {
			return true
		}
	}
	return false
}

func TestOneVolumeOfAPodThatWaitsMakesItWait(t *testing.T) {
	s, done := waiting(), waiting()
	s.ofPod()
	done.va.Status.Attached = true
	s.Volumes = append(s.Volumes, *done.v)
	r := Explain(s.Facts)
	if r.Result != Waiting || len(r.Volumes) != 2 || r.Volumes[0].Result != Waiting || r.Volumes[1].Result != Attached {
		t.Errorf("want waiting of waiting and attached:\n%s", r.Text())
	}
}

func TestWhatDoesNotExistEndsWithTwo(t *testing.T) {
	r := Explain(Facts{Now: now, Question: Question{Kind: Pod, Namespace: "a", Name: "b"}})
	if r.Result != NotFound || r.Result.ExitCode() != 2 || !strings.Contains(r.Text(), "Pod a/b: not found") {
		t.Errorf("%s", r.Text())
	}
}

func TestNotesTellRetriesBeingStuckAndOtherTroubles(t *testing.T) {
	s := waiting()
	s.va.CreationTimestamp = before(20 * time.Minute)
	s.seen.State, s.seen.Tries, s.seen.NextTry = status.Stuck, 5, now.Add(40*time.Second)
	s.seen.LastError = "rpc error: code = Internal desc = broken"
	s.v.CSINode = Absent[storagev1.CSINode]()
	s.served.ForeignWriter = status.ForeignWriter{Manager: "csi-attacher", Time: now.Add(-time.Minute), VolumeAttachment: "x"}
	s.served.RecordedCalls = 2
	s.Hub.View.Replicas[0].Overview.Config.Errors = []string{"drivers.yaml:3: no"}
	r := Explain(s.Facts)
	for _, want := range []diagnosis.Verdict{diagnosis.Retrying, diagnosis.Stuck, diagnosis.BackendError, diagnosis.ForeignWriter, diagnosis.CapabilityMissing} {
		if !noted(r, want) {
			t.Errorf("no note %s:\n%s", want, r.Text())
		}
	}
	if text := r.Text(); !strings.Contains(text, "5 tries in a row have failed: the next one is in 40s") {
		t.Errorf("no word of the next try:\n%s", text)
	}
}

func TestAnErrorThatRepeatsTheStopIsNoNote(t *testing.T) {
	for text, change := range map[string]func(*situation){
		`csinode "node-1" not found: the node is gone`:                                     func(s *situation) { s.v.CSINode, s.v.Node = Absent[storagev1.CSINode](), Absent[corev1.Node]() },
		`persistentvolume "pv-1" not found`:                                                func(s *situation) { s.v.PersistentVolume = Absent[corev1.PersistentVolume]() },
		`read secret ns/creds for the call: secrets "creds" not found`:                     func(s *situation) { s.v.Secret = Secret{Namespace: "ns", Name: "creds", Object: Absent[struct{}]()} },
		`csinode "node-1" does not contain driver "x": the driver's node plugin is not up`: func(s *situation) { s.v.CSINode.Value().Spec.Drivers = nil },
	} {
		s := waiting()
		change(s)
		s.failed(text, 0)
		if r := Explain(s.Facts); len(r.Volumes[0].Notes) > 0 {
			t.Errorf("%s is told twice:\n%s", text, r.Text())
		}
	}
}

// Each object of a volume in turn is not read. Whatever the report then says, it does not
// say that the object is missing.
func TestAnObjectThatWasNotReadIsNeverCalledMissing(t *testing.T) {
	volume := reflect.TypeFor[Volume]()
	objects := []string{"Leases.All", "Secret.Object"}
	for i := range volume.NumField() {
		if f := volume.Field(i); strings.HasPrefix(f.Type.Name(), "Object[") {
			objects = append(objects, f.Name)
		}
	}
	if len(objects) < 11 {
		t.Fatalf("found only %q", objects)
	}
	for name, change := range map[string]func(*situation){
		"attaching": func(*situation) {},
		"detaching": (*situation).deleted,
		"no hub":    (*situation).alone,
		"not asked": (*situation).ofPod,
		"by claim":  func(s *situation) { s.ofPod(); s.Question.Kind = PersistentVolumeClaim; s.Pod, s.v.NodeName = nil, "" },
		"by volume": func(s *situation) { s.ofPod(); s.Question.Kind = PersistentVolume; s.Pod, s.v.NodeName = nil, "" },
	} {
		for _, object := range objects {
			s := waiting()
			s.v.Secret = Secret{Namespace: "ns", Name: "creds", Object: Present(&struct{}{})}
			change(s)
			at := reflect.ValueOf(s.v).Elem()
			for field := range strings.SplitSeq(object, ".") {
				at = at.FieldByName(field)
			}
			at.SetZero()
			text := Explain(s.Facts).Text()
			if strings.Contains(text, "does not exist") || strings.Contains(text, "nobody") ||
				object == "Attachment" && strings.Contains(text, "has no VolumeAttachment") {
				t.Errorf("%s, %s not read:\n%s", name, object, text)
			}
		}
	}
}

func TestAStuckVolumeOfWhichNothingIsKnownIsNotToldToWait(t *testing.T) {
	s := waiting()
	s.seen.State = status.Stuck
	if stop := Explain(s.Facts).Volumes[0].Stop; stop.Verdict != diagnosis.NoReasonKnown || strings.Contains(stop.Next, "Wait") {
		t.Errorf("it stops at %+v", stop)
	}
}

func TestWhatCouldNotBeAskedIsSaidOnce(t *testing.T) {
	s := waiting()
	s.alone()
	s.v.Leases = Leases{Name: "l", All: Unreadable[[]coordinationv1.Lease](errors.New("leases is forbidden"))}
	s.v.CSINode = Unreadable[storagev1.CSINode](errors.New("csinodes is forbidden"))
	s.v.Secret = Secret{Namespace: "ns", Name: "creds", Object: Unreadable[struct{}](errors.New("secrets is forbidden"))}
	s.Volumes = append(s.Volumes, *s.v)
	r := Explain(s.Facts)
	if len(r.Unknown) != 4 {
		t.Errorf("%d things are not known, want 4: %q", len(r.Unknown), r.Unknown)
	}
	for _, word := range []string{"connection refused", "queues", "leases is forbidden", "csinodes is forbidden", "Secret ns/creds"} {
		if text := r.Text(); !strings.Contains(text, word) {
			t.Errorf("%q is not in:\n%s", word, text)
		}
	}
}

func TestAHostileErrorNeitherActsOnTheTerminalNorLooksLikeAnotherLine(t *testing.T) {
	s := waiting()
	s.failed("rpc error: code = Internal desc = \x1b[2J\x1b]0;title\x07\n  ok    all is well\u202e\u009b31m", 13)
	text := Explain(s.Facts).Text()
	for _, r := range text {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%q is in %q", r, text)
		}
	}
	if strings.Contains(text, "\n  ok    all is well") {
		t.Errorf("an error made a line of its own:\n%s", text)
	}
}

func TestParseQuestion(t *testing.T) {
	for text, want := range map[string]Question{
		"driver/a":             {Driver, "", "a"},
		"node/a":               {Node, "", "a"},
		"node/":                {},
		"csi-1":                {VolumeAttachment, "", "csi-1"},
		"va/csi-1":             {VolumeAttachment, "", "csi-1"},
		"pv/a":                 {PersistentVolume, "", "a"},
		"persistentvolume/a":   {PersistentVolume, "", "a"},
		"pvc/ns/a":             {PersistentVolumeClaim, "ns", "a"},
		"pod/ns/a":             {Pod, "ns", "a"},
		"PODS/ns/a":            {Pod, "ns", "a"},
		"":                     {},
		"pod/a":                {Pod, "team", "a"},
		"pvc/a":                {PersistentVolumeClaim, "team", "a"},
		"pod/":                 {},
		"pod/ns/":              {},
		"pvc//a":               {},
		"pv/":                  {},
		"pv/a/b":               {},
		"pod/a/b/c":            {},
		"secret/a":             {},
		"volumeattachment/a/b": {},
	} {
		got, err := ParseQuestion(text, "team")
		if got != want || (err == nil) != (want != Question{}) {
			t.Errorf("ParseQuestion(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

// The hub may have marked it attached without a call.
func TestAttachedVolumeOfADriverAtTheWrongEndpointHasANote(t *testing.T) {
	s := waiting()
	s.va.Status.Attached = true
	if r := Explain(s.Facts); noted(r, diagnosis.CapabilityMissing) {
		t.Errorf("%s", r.Text())
	}
	s.served.RecordedCalls = 2
	if r := Explain(s.Facts); r.Result != Attached || !noted(r, diagnosis.CapabilityMissing) {
		t.Errorf("%s", r.Text())
	}
}

func TestMissingSecretOfADetachIsExplained(t *testing.T) {
	s := waiting()
	s.va.DeletionTimestamp, s.va.Finalizers = new(before(time.Minute)), []string{attach.Finalizer(driver)}
	s.v.Secret = Secret{Namespace: "ns", Name: "creds", Object: Absent[struct{}]()}
	notes := Explain(s.Facts).Volumes[0].Notes
	if !slices.ContainsFunc(notes, func(f Finding) bool {
		return f.Verdict == diagnosis.SecretMissing && strings.Contains(f.Fact, "uses the content that the volume was attached with")
	}) {
		t.Errorf("notes %+v", notes)
	}
}
