package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
)

// The ways to ask about the volume of a world.
const (
	byVA  = "csi-1"
	byPV  = "pv/pv-1"
	byPVC = "pvc/default/data"
	byPod = "pod/default/web"
)

var ways = []string{byVA, byPV, byPVC, byPod}

// The answers to a question, as answer writes them.
const (
	isAttached = "attached"
	notNeeded  = "notNeeded"
	isUnknown  = "unknown"    // what it takes to answer could not be read
	notThere   = "notFound"   // the object that was asked for
	refused    = "cannot ask" // the object that was asked for could not be read
)

// state is one that a world can be in, and what is answered.
type state struct {
	name   string
	change func(*world)
	want   string            // by every way to ask
	but    map[string]string // by these ways
	// unknown is in what could not be asked, "|" between several; none: all could be asked.
	unknown string
}

// asks of a world in which there is no VolumeAttachment.
func withoutVA(pairs ...string) map[string]string { return but(append(pairs, byVA, notThere)...) }

func but(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// attached has the volume attached.
func attached(w *world) {
	w.va.Status.Attached, w.seen.State, w.seen.Operation = true, status.Attached, ""
}

// leaving has the volume detached since a minute.
func leaving(w *world) {
	attached(w)
	w.va.DeletionTimestamp, w.seen.State, w.seen.Operation = agoPointer(time.Minute), status.Waiting, status.Detach
}

// due has an operation due on an attached volume.
func due(op status.Operation) func(*world) {
	return func(w *world) {
		attached(w)
		w.seen.State, w.seen.Operation, w.seen.Since, w.seen.LastError = status.Failing, op, time.Now().Add(-time.Hour), "rpc error: code = Internal desc = busy"
	}
}

// pvGone takes the PersistentVolume away, and with it the claim is Lost.
func pvGone(w *world) { w.pv, w.claim.Status.Phase = nil, corev1.ClaimLost }

// notAsked takes the VolumeAttachment away.
func notAsked(w *world) { w.va, w.seen = nil, nil }

// idle takes the Pod away too.
func idle(w *world) { notAsked(w); w.pod = nil }

func failing(w *world) {
	code := int32(13)
	w.va.Status.AttachError = &storagev1.VolumeError{Message: "rpc error: code = Internal desc = broken array", Time: ago(time.Second), ErrorCode: &code}
	w.seen.State, w.seen.Tries, w.seen.LastError = status.Failing, 3, w.va.Status.AttachError.Message
}

// driverIs changes what the hub says about the driver.
func driverIs(change func(*status.Driver)) func(*world) {
	return func(w *world) { change(&w.served.Driver) }
}

func driverState(state, reason string, up bool) func(*world) {
	return driverIs(func(d *status.Driver) {
		d.State, d.Reason, d.Up = state, reason, up
		d.Lease.Mine = up && state != "WaitingForLease"
	})
}

// held has somebody hold the lease of the driver, or have let it expire.
func held(holder string, renewedBefore time.Duration) func(*world) {
	return func(w *world) {
		w.lease = leaseOf(hubSpace, holder, renewedBefore)
		if w.served == nil {
			return
		}
		l := &w.served.Lease
		l.Holder, l.Mine, l.Since, l.Renewed = holder, false, w.lease.Spec.RenewTime.Time, w.lease.Spec.RenewTime.Time
		if holder != "" && renewedBefore > time.Minute {
			l.Holder, l.LastHolder = "", holder
		}
	}
}

// waitsForLease has the hub wait for the lease of the driver, for a reason that it gives.
func waitsForLease(reason string) func(*world) { return driverState("WaitingForLease", reason, true) }

// sidecar has a csi-attacher hold the lease of the driver.
func sidecar(w *world) { held("sidecar-7", 2*time.Second)(w) }

// fails has the last try fail, as the status of the VolumeAttachment says.
func fails(message string) func(*world) {
	return func(w *world) {
		w.va.Status.AttachError = &storagev1.VolumeError{Message: message, Time: ago(12 * time.Second)}
		if w.seen != nil {
			w.seen.LastError, w.seen.LastErrorTime = message, w.va.Status.AttachError.Time.Time
		}
	}
}

// faulty has the hub find something wrong with the objects.
func faulty(verdict diagnosis.Verdict, object string) func(*world) {
	return func(w *world) {
		w.seen.Fault = diagnosis.New(verdict, object, "odd", "", "Mend it.").From(time.Now().Add(-time.Minute))
	}
}

// conflict has the hub not serve the driver.
func conflict(reason string) func(*world) {
	return func(w *world) {
		w.served, w.config.Conflicts = nil, []status.Conflict{{Driver: driverName, Loser: "CSIDriver csi.example.com", Reason: reason}}
	}
}

// storageSays has the driver refuse the attach because the volume is on node-3.
func storageSays(u status.DanglingPublication) func(*world) {
	return func(w *world) {
		u.VolumeHandle, u.NodeID, u.Node, u.PersistentVolume = "vol-1", "id-3", "node-3", "pv-1"
		w.seen.VolumeHandle, w.seen.LastError, w.served.Dangling = "vol-1", "rpc error: code = FailedPrecondition desc = in use", []status.DanglingPublication{u}
	}
}

// elsewhere has the volume attached to node-2 by the VolumeAttachment csi-0.
func elsewhere(w *world) {
	other := attachmentOf("csi-0", "pv-1", "node-2")
	other.Status.Attached = true
	w.more = append(w.more, other)
}

func leavingElsewhere(w *world) {
	elsewhere(w)
	w.more[len(w.more)-1].SetDeletionTimestamp(agoPointer(time.Minute))
}

func pvDeleted(w *world) {
	w.pv.DeletionTimestamp, w.pv.Finalizers = agoPointer(time.Minute), []string{"kubernetes.io/pv-protection"}
}

func noAttach(w *world) { no := false; w.csiDriver.Spec.AttachRequired = &no }

// withoutClaim has nobody claim the volume.
func withoutClaim(w *world) { w.claim, w.pod, w.pv.Spec.ClaimRef = nil, nil, nil }

// migratedInline has the Pod name a disk of its own, which is migrated to CSI.
func migratedInline(w *world) {
	w.claim, w.pv, w.served, w.seen = nil, nil, nil, nil
	w.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-0a1"}}
	w.va.Spec.Attacher, w.csiNode.Spec.Drivers[0].Name = "ebs.csi.aws.com", "ebs.csi.aws.com"
	w.va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "ebs.csi.aws.com", VolumeHandle: "vol-0a1"}}}}
}

func noHub(w *world) { w.hubErr = errNoHub }

func forbid(what ...string) func(*world) { return func(w *world) { w.forbidden = what } }

// all makes several changes, in order.
func all(changes ...func(*world)) func(*world) {
	return func(w *world) {
		for _, change := range changes {
			change(w)
		}
	}
}

var states = []state{
	// The VolumeAttachment.
	{"attached", attached, isAttached, nil, ""},
	{"just asked for", func(*world) {}, "waiting: NoReasonKnown VolumeAttachment csi-1", nil, ""},
	{"failing", failing, "waiting: BackendError driver csi.example.com", nil, ""},
	{"last try failed, only the text is known", fails("rpc error: code = NotFound desc = no vol-1"), "waiting: BackendError driver csi.example.com", nil, ""},
	{"last try failed, the hub knows a newer error", all(failing, func(w *world) {
		w.seen.LastError = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
	}), "waiting: BackendError driver csi.example.com", nil, ""},
	{"last try failed, stuck", fails("stuck: attach wanted since 2026-03-01T02:00:00Z, tried 40 times, the last error: rpc error: code = Aborted desc = pending"),
		"waiting: BackendError driver csi.example.com", nil, ""},
	{"last try failed, nobody knows the error", fails("something else"), "waiting: LastError VolumeAttachment csi-1", nil, ""},
	{"last try failed, the driver speaks of a secret", fails("rpc error: code = PermissionDenied desc = read secret a/b for the call: forbidden"), "waiting: BackendError driver csi.example.com", nil, ""},
	{"stuck, nothing known", func(w *world) { w.seen.State = status.Stuck }, "waiting: NoReasonKnown VolumeAttachment csi-1", nil, ""},
	{"published elsewhere", storageSays(status.DanglingPublication{FromList: true, ReportOnly: true}), "waiting: Dangling driver csi.example.com", nil, ""},
	{"stuck", all(failing, func(w *world) { w.seen.State, w.va.CreationTimestamp = status.Stuck, ago(time.Hour) }),
		"waiting: BackendError driver csi.example.com", nil, ""},
	{"being detached, call in flight", all(leaving, func(w *world) { w.seen.State = status.Detaching }), "waiting: CallInFlight VolumeAttachment csi-1", nil, ""},
	{"being detached", leaving, "waiting: BeingDetached VolumeAttachment csi-1", nil, ""},
	{"being detached, without its Pod", all(leaving, func(w *world) { w.pod = nil }), "waiting: BeingDetached VolumeAttachment csi-1", but(byPod, notThere), ""},
	{"detach failing", all(leaving, func(w *world) { w.seen.LastError = "rpc error: code = Internal desc = busy" }), "waiting: BackendError driver csi.example.com", nil, ""},
	{"detached, gone any moment", all(leaving, func(w *world) { w.va.Finalizers = nil }), "waiting: BeingDetached VolumeAttachment csi-1", nil, ""},
	{"detached, held by the finalizer of another", all(leaving, faulty(diagnosis.FinalizerOfAnother, "VolumeAttachment csi-1")),
		"waiting: FinalizerOfAnother VolumeAttachment csi-1", nil, ""},
	{"attached, and a detach is due and fails", all(noAttach, due(status.Detach)), "waiting: BackendError driver csi.example.com", nil, ""},
	{"attached, and a detach is due and stuck", all(noAttach, due(status.Detach), func(w *world) { w.seen.State, w.seen.LastError = status.Stuck, "" }),
		"waiting: BeingDetached VolumeAttachment csi-1", nil, ""},
	{"attached, and not listed by the storage system", due(status.Drift), "waiting: BackendError driver csi.example.com", nil, ""},
	{"not asked for yet", notAsked, "waiting: NotAskedYet PersistentVolume pv-1", withoutVA(), ""},
	{"not asked for yet, to a node without the annotation", all(notAsked, func(w *world) { w.node.Annotations = nil }), "waiting: KubeletAttaches Node node-1", withoutVA(), ""},
	{"nobody wants it", idle, "notNeeded: NotWanted PersistentVolume pv-1", withoutVA(byPod, notThere), ""},

	// The Pod.
	{"Pod without a node", all(notAsked, func(w *world) {
		w.pod.Spec.NodeName = ""
		w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
	}), "waiting: PodNotScheduled Pod default/web", withoutVA(), ""},
	{"Pod without a node, of a driver that needs no attach", all(notAsked, noAttach, func(w *world) { w.pod.Spec.NodeName = "" }), notNeeded,
		withoutVA(byPod, "waiting: PodNotScheduled Pod default/web"), ""},
	{"Pod that has ended, volume still attached", all(attached, func(w *world) { w.pod.Status.Phase = corev1.PodSucceeded }), isAttached,
		but(byPod, "notNeeded: PodFinished Pod default/web"), ""},
	{"Pod that has ended", all(notAsked, func(w *world) { w.pod.Status.Phase = corev1.PodSucceeded }), "notNeeded: NotWanted PersistentVolume pv-1",
		withoutVA(byPod, "notNeeded: PodFinished Pod default/web"), ""},
	{"nothing to attach", all(idle, func(w *world) {
		w.claim, w.pv = nil, nil
		w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	}), notThere, but(byPod, "notNeeded: NothingToAttach Pod default/web"), ""},
	{"inline volume that needs no attach", func(w *world) {
		w.pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}}
		w.claim, w.pv, w.va = nil, nil, nil
	}, notThere, but(byPod, "notNeeded: NothingToAttach Pod default/web"), ""},
	{"migrated inline volume, attached", all(attached, migratedInline), isAttached, but(byPV, notThere, byPVC, notThere), ""},
	{"migrated inline volume, waiting", migratedInline, "waiting: DriverNotConfigured csi-attach-hub", but(byPV, notThere, byPVC, notThere), ""},
	{"migrated inline volume, not asked for yet", all(migratedInline, notAsked), notThere, but(byPod, "waiting: NotAskedYet volume data"), ""},

	// The claim. The volume is attached or not by its VolumeAttachment; without one, the
	// claim is why.
	{"claim missing", all(notAsked, func(w *world) { w.claim = nil }), "waiting: ClaimMissing PersistentVolumeClaim default/data", withoutVA(byPVC, notThere), ""},
	{"claim missing, volume attached", all(attached, func(w *world) { w.claim = nil }), isAttached,
		but(byPVC, notThere, byPod, "waiting: ClaimMissing PersistentVolumeClaim default/data"), ""},
	{"claim missing, volume failing", all(failing, func(w *world) { w.claim = nil }), "waiting: BackendError driver csi.example.com",
		but(byPVC, notThere, byPod, "waiting: ClaimMissing PersistentVolumeClaim default/data"), ""},
	{"claim gone, volume released", all(idle, func(w *world) { w.claim = nil }), "waiting: ClaimMissing PersistentVolumeClaim default/data",
		withoutVA(byPVC, notThere, byPod, notThere), ""},
	{"claim gone, volume being deleted", all(idle, pvDeleted, func(w *world) { w.claim = nil }), "waiting: VolumeBeingDeleted PersistentVolume pv-1",
		withoutVA(byPVC, notThere, byPod, notThere), ""},
	{"claim not bound", all(notAsked, func(w *world) { w.claim.Status.Phase, w.claim.Spec.StorageClassName = corev1.ClaimPending, new("fast") }),
		"waiting: ClaimNotBound PersistentVolumeClaim default/data", withoutVA(), ""},
	{"claim without a volume", all(notAsked, func(w *world) { w.pv, w.claim.Spec.VolumeName, w.claim.Status.Phase = nil, "", corev1.ClaimPending }),
		"waiting: ClaimNotBound PersistentVolumeClaim default/data", withoutVA(byPV, notThere), ""},
	{"claim lost, volume attached", all(attached, func(w *world) { w.claim.Status.Phase = corev1.ClaimLost }), isAttached,
		but(byPVC, "attention: ClaimNotBound PersistentVolumeClaim default/data", byPod, "attention: ClaimNotBound PersistentVolumeClaim default/data"), ""},
	{"no claim, volume attached", all(attached, withoutClaim), isAttached, but(byPVC, notThere, byPod, notThere), ""},
	{"no claim, nobody wants it", all(idle, withoutClaim), "notNeeded: NotWanted PersistentVolume pv-1", withoutVA(byPVC, notThere, byPod, notThere), ""},
	{"claim made anew, volume of the one before", all(notAsked, func(w *world) { w.claim.UID, w.claim.Status.Phase = "another", corev1.ClaimLost }),
		"waiting: ClaimNotBound PersistentVolumeClaim default/data", withoutVA(), ""},
	{"claim made anew, with another volume", all(notAsked, func(w *world) {
		second := w.pv.DeepCopy()
		second.Name, second.Spec.ClaimRef.UID = "pv-2", "another"
		w.claim.UID, w.claim.Spec.VolumeName, w.more = "another", "pv-2", append(w.more, second)
	}), "waiting: NotAskedYet PersistentVolume pv-2", withoutVA(byPV, "notNeeded: NotWanted PersistentVolume pv-1"), ""},

	// The PersistentVolume.
	{"PersistentVolume missing", pvGone, "waiting: VolumeMissing PersistentVolume pv-1", nil, ""},
	{"PersistentVolume missing, and the last try says so", all(fails(`persistentvolume "pv-1" not found`), pvGone), "waiting: VolumeMissing PersistentVolume pv-1", nil, ""},
	{"no hub, PersistentVolume missing, volume attached", all(noHub, attached, pvGone), "attention: VolumeMissing PersistentVolume pv-1", nil, "connection refused"},
	{"no hub, PersistentVolume being deleted, volume attached", all(noHub, attached, pvDeleted), "attention: VolumeBeingDeleted PersistentVolume pv-1", nil, "connection refused"},
	{"PersistentVolume and handle missing, being detached", all(leaving, pvGone, func(w *world) { delete(w.va.Annotations, attach.AnnotationVolumeHandle) }),
		"waiting: VolumeMissing PersistentVolume pv-1", nil, ""},
	{"PersistentVolume deleted by force", all(attached, faulty(diagnosis.VolumeMissing, "PersistentVolume pv-1"), func(w *world) { w.pv, w.claim.Status.Phase = nil, corev1.ClaimLost }),
		"attention: VolumeMissing PersistentVolume pv-1", nil, ""},
	{"PersistentVolume made again", all(attached, faulty(diagnosis.VolumeRecreated, "PersistentVolume pv-1"), func(w *world) { w.claim.Status.Phase = corev1.ClaimLost }),
		"attention: VolumeRecreated PersistentVolume pv-1", nil, ""},
	{"something wrong with an attached volume", all(attached, faulty(diagnosis.NodeIDChanged, "CSINode node-1")), "attention: NodeIDChanged CSINode node-1", nil, ""},
	{"StorageClass missing", all(notAsked, func(w *world) {
		w.claim.Spec.VolumeName, w.claim.Spec.StorageClassName, w.claim.Status.Phase, w.pv = "", new("fast"), corev1.ClaimPending, nil
	}), "waiting: ClaimNotBound PersistentVolumeClaim default/data", withoutVA(byPV, notThere), ""},
	{"PersistentVolume missing, not asked for", all(notAsked, func(w *world) { w.pv = nil }), "waiting: VolumeMissing PersistentVolume pv-1", withoutVA(byPV, notThere), ""},
	{"PersistentVolume missing, being detached", all(leaving, func(w *world) { w.pv = nil }), "waiting: BeingDetached VolumeAttachment csi-1", nil, ""},
	{"PersistentVolume being deleted", pvDeleted, "waiting: VolumeBeingDeleted PersistentVolume pv-1", nil, ""},
	{"PersistentVolume being deleted, being detached", all(leaving, pvDeleted), "waiting: BeingDetached VolumeAttachment csi-1", nil, ""},
	{"PersistentVolume being deleted, nobody wants it", all(idle, pvDeleted), "waiting: VolumeBeingDeleted PersistentVolume pv-1", withoutVA(byPod, notThere), ""},
	{"not a CSI volume", all(notAsked, func(w *world) {
		w.pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
	}), "waiting: VolumeNotCSI PersistentVolume pv-1", withoutVA(), ""},
	{"attach not required", all(notAsked, noAttach), notNeeded, withoutVA(), ""},
	{"attach not required, and yet asked for", noAttach, notNeeded, nil, ""},

	// The driver.
	{"driver not configured", func(w *world) { w.served, w.lease = nil, nil }, "waiting: DriverNotConfigured csi-attach-hub", nil, ""},
	{"driver not configured, another replica works for it", func(w *world) { w.served = nil; held("hub-1_def", time.Second)(w) }, "waiting: DriverNotConfigured csi-attach-hub", nil, ""},
	{"driver not configured, a csi-attacher works for it", func(w *world) { w.served = nil; sidecar(w) }, "waiting: DriverNotConfigured csi-attach-hub", nil, ""},
	{"driver not configured, and a csi-attacher's try failed", all(failing, func(w *world) { w.served, w.lease, w.seen = nil, nil, nil }), "waiting: BackendError driver csi.example.com", nil, ""},
	{"endpoint not allowed", conflict(`endpoint "unix:///x" is not allowed by discovery.csiDrivers.allowedEndpoints, nothing is contacted`), "waiting: EndpointNotAllowed csi-attach-hub", nil, ""},
	{"conflict", all(failing, conflict("is already the endpoint of another")), "waiting: DriverConflict csi-attach-hub", nil, ""},
	{"configuration rejected", func(w *world) {
		w.served, w.config.Errors = nil, []string{"drivers.yaml:3: a", "drivers.yaml:4: b", "drivers.yaml:5: c", "drivers.yaml:6: d"}
	}, "waiting: ConfigBroken csi-attach-hub", nil, ""},
	{"driver away", driverState("Lost", "dial tcp 10.0.0.1:9443: connect: connection refused", false), "waiting: CannotConnect driver csi.example.com", nil, ""},
	{"driver away, volume attached", all(attached, driverState("Lost", "connection refused", false)), isAttached, nil, ""},
	{"driver away, being detached", all(leaving, driverState("Lost", "connection refused", false)), "waiting: CannotConnect driver csi.example.com", nil, ""},
	{"driver paused", driverIs(func(d *status.Driver) { d.Mode, d.State, d.Lease.Mine = "paused", "Paused", false }), "waiting: DriverPaused driver csi.example.com", nil, ""},
	{"driver observed", all(sidecar, driverIs(func(d *status.Driver) { d.Mode = "observe" })), "waiting: DriverObserved driver csi.example.com", nil, ""},
	{"driver observed, and a csi-attacher's try failed", all(failing, sidecar, driverIs(func(d *status.Driver) { d.Mode = "observe" })), "waiting: BackendError driver csi.example.com", nil, ""},

	// The lease.
	{"lease held by a csi-attacher", all(waitsForLease("held by sidecar-7"), sidecar), "waiting: LeaseHeld Lease storage/" + leaseName, nil, ""},
	{"lease held by another replica", all(waitsForLease("held by hub-1_def"), held("hub-1_def", time.Second), func(w *world) {
		w.seen.Waiting = status.Wait{Kind: status.WaitForDriver, DriverState: "Ready", Reason: "served by hub-1_def"}
	}), "waiting: LeaseHeld Lease storage/" + leaseName, nil, ""},
	{"failing, lease held by another replica", all(waitsForLease("held by hub-1_def"), held("hub-1_def", time.Second), failing), "waiting: BackendError driver csi.example.com", nil, ""},
	{"no hub, lease held", noHub, "waiting: NoReasonKnown VolumeAttachment csi-1", nil, "connection refused"},
	{"no hub, lease missing", all(noHub, func(w *world) { w.lease = nil }), "waiting: LeaseMissing Lease storage/" + leaseName, nil, "connection refused"},
	{"no hub, lease free", all(noHub, held("", time.Hour)), "waiting: LeaseFree Lease storage/" + leaseName, nil, "connection refused"},
	{"no hub, lease expired", all(noHub, held(identity, time.Hour)), "waiting: LeaseExpired Lease storage/" + leaseName, nil, "connection refused"},
	{"no hub, volume attached", all(noHub, attached), isAttached, nil, "connection refused"},
	{"no hub, could not be called", all(noHub, fails("the driver is not connected: dial refused")), "waiting: CannotConnect driver csi.example.com", nil, "connection refused"},
	{"no hub, failing", all(noHub, failing), "waiting: BackendError driver csi.example.com", nil, "connection refused"},
	{"no hub, not asked for yet", all(noHub, notAsked), "waiting: NotAskedYet PersistentVolume pv-1", withoutVA(), "connection refused"},
	{"the replica that works for the driver does not answer", func(w *world) { w.seenErr = errNoHub }, "waiting: NoReasonKnown VolumeAttachment csi-1", nil, "connection refused"},

	// The node.
	{"node without the driver", func(w *world) { w.csiNode.Spec.Drivers = nil }, "waiting: NodeWithoutDriver CSINode node-1", nil, ""},
	{"node without CSI", func(w *world) { w.csiNode = nil }, "waiting: NodeWithoutCSI CSINode node-1", nil, ""},
	{"node missing", func(w *world) { w.csiNode, w.node = nil, nil }, "waiting: NodeMissing Node node-1", nil, ""},
	{"node missing, volume attached", all(attached, func(w *world) { w.csiNode, w.node = nil, nil }), isAttached, nil, ""},
	{"node missing, being detached", all(leaving, func(w *world) { w.csiNode, w.node = nil, nil }), "waiting: BeingDetached VolumeAttachment csi-1", nil, ""},
	{"node missing, not asked for", all(notAsked, func(w *world) { w.csiNode, w.node = nil, nil }), "waiting: NodeMissing Node node-1", withoutVA(), ""},

	// Another node. Asked about as a whole, the volume is in two places.
	{"attached elsewhere, that node gone", elsewhere, "waiting: AttachedElsewhere VolumeAttachment csi-0", nil, ""},
	{"attached elsewhere, not asked for yet", all(notAsked, elsewhere), "waiting: AttachedElsewhere VolumeAttachment csi-0", withoutVA(), ""},
	{"being detached elsewhere", leavingElsewhere, "waiting: WaitingForDetach VolumeAttachment csi-0", nil, ""},
	{"being detached elsewhere, not asked for yet", all(notAsked, leavingElsewhere), "waiting: WaitingForDetach VolumeAttachment csi-0", withoutVA(), ""},
	{"attached elsewhere, Pods forbidden", all(elsewhere, forbid("pods"), func(w *world) { w.more = append(w.more, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}) }), "waiting: AttachedElsewhere VolumeAttachment csi-0", but(byPod, refused), "pods is forbidden"},
	{"attached here and, as many may, elsewhere", all(attached, elsewhere, func(w *world) { w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany} }),
		isAttached, nil, ""},
	{"many may have it, and it fails here", all(failing, elsewhere, func(w *world) { w.pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany} }),
		"waiting: BackendError driver csi.example.com", nil, ""},

	// The secret.
	{"secret missing", needsSecret, "waiting: SecretMissing VolumeAttachment csi-1", nil, ""},
	{"secret forbidden to the hub", all(needsSecret, fails(`read secret default/creds for the call: secrets "creds" is forbidden: User "hub" cannot get`)),
		"waiting: SecretForbidden VolumeAttachment csi-1", nil, ""},

	// What may not be read.
	{"claims forbidden, volume attached", all(attached, forbid("persistentvolumeclaims")), isAttached, but(byPVC, refused, byPod, isUnknown), "persistentvolumeclaims is forbidden"},
	{"claims forbidden, not asked for yet", all(notAsked, forbid("persistentvolumeclaims")), "waiting: NotAskedYet PersistentVolume pv-1",
		withoutVA(byPVC, refused, byPod, isUnknown), "persistentvolumeclaims is forbidden"},
	{"Pods forbidden, volume attached", all(attached, forbid("pods")), isAttached, but(byPod, refused), "pods is forbidden"},
	{"Pods forbidden, not asked for yet", all(notAsked, forbid("pods")), isUnknown, withoutVA(byPod, refused), "pods is forbidden"},
	{"list of Pods forbidden, not asked for yet", all(notAsked, forbid("list pods")), isUnknown,
		withoutVA(byPod, "waiting: NotAskedYet PersistentVolume pv-1"), "pods is forbidden"},
	{"PersistentVolumes forbidden, volume attached", all(attached, forbid("persistentvolumes")), isAttached, but(byPV, refused), "persistentvolumes is forbidden"},
	{"PersistentVolumes forbidden, being detached", all(leaving, forbid("persistentvolumes"), func(w *world) { delete(w.va.Annotations, attach.AnnotationVolumeHandle) }),
		"waiting: BeingDetached VolumeAttachment csi-1", but(byPV, refused), "persistentvolumes is forbidden"},
	{"PersistentVolumes forbidden, secret forbidden to the attacher", all(forbid("persistentvolumes"), func(w *world) {
		fails(`read secret default/creds for the call: secrets "creds" is forbidden`)(w)
	}), "waiting: SecretForbidden VolumeAttachment csi-1", but(byPV, refused), "persistentvolumes is forbidden"},
	{"PersistentVolumes forbidden, not asked for yet", all(notAsked, forbid("persistentvolumes")), isUnknown, withoutVA(byPV, refused), "persistentvolumes is forbidden"},
	{"VolumeAttachments forbidden", all(attached, forbid("volumeattachments")), isUnknown, but(byVA, refused), "volumeattachments is forbidden"},
	{"list of VolumeAttachments forbidden, volume attached", all(attached, forbid("list volumeattachments")), isUnknown, but(byVA, isAttached), "volumeattachments is forbidden"},
	{"nodes forbidden, node without CSI", all(forbid("nodes"), func(w *world) { w.csiNode, w.node = nil, nil }), "waiting: NodeWithoutCSI CSINode node-1", nil, "nodes is forbidden"},
	{"nodes forbidden, not asked for yet", all(notAsked, forbid("nodes")), "waiting: NotAskedYet PersistentVolume pv-1", withoutVA(), "nodes is forbidden"},
	{"CSINodes forbidden", forbid("csinodes"), "waiting: NoReasonKnown VolumeAttachment csi-1", nil, "csinodes is forbidden"},
	{"CSIDrivers forbidden, volume attached", all(attached, forbid("csidrivers")), isAttached, nil, "csidrivers is forbidden"},
	{"CSIDrivers forbidden, not asked for yet", all(notAsked, forbid("csidrivers")), isUnknown, withoutVA(), "csidrivers is forbidden"},
	{"leases forbidden", forbid("leases"), "waiting: NoReasonKnown VolumeAttachment csi-1", nil, "leases is forbidden"},
	{"leases forbidden, no hub", all(noHub, forbid("leases")), "waiting: NoReasonKnown VolumeAttachment csi-1", nil, "leases is forbidden|connection refused"},
}

// needsSecret has the volume need a Secret that is not there.
func needsSecret(w *world) {
	w.pv.Spec.CSI.ControllerPublishSecretRef = &corev1.SecretReference{Namespace: "default", Name: "creds"}
	fails(`read secret default/creds for the call: secrets "creds" not found`)(w)
}

// answer writes what is answered in short: the result, and where it stops.
func answer(r explain.Report, err error) string {
	if err != nil {
		return refused
	}
	stop := r.Stop
	for i := range r.Volumes {
		// Of a volume on several nodes the one that the world is about counts.
		if v := &r.Volumes[i]; stop == nil || strings.HasSuffix(v.Title, " on node node-1") && v.Stop != nil {
			stop = v.Stop
		}
	}
	switch {
	case r.Result == explain.NotFound && stop != nil && stop.Object == r.Question.String():
		return notThere
	case stop == nil:
		return string(r.Result)
	}
	return string(r.Result) + ": " + string(stop.Verdict) + " " + stop.Object
}

var exitCodes = map[string]int{isAttached: 0, "waiting": 1, "attention": 1, "standby": 0, notNeeded: 0, notThere: 2, isUnknown: 3}

func TestEveryWayToAskAboutAStateHasTheSameAnswer(t *testing.T) {
	var texts strings.Builder
	seen := map[string]bool{}
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, way := range ways {
					w := newWorld()
					s.change(w)
					want, other := s.but[way]
					if !other {
						want = s.want
					}
					report, err := w.asked(t, way)
					if got := answer(report, err); got != want {
						t.Errorf("explain %s answers %q, want %q:\n%v%s", way, got, want, err, report.Text(statustable.Style{}, true))
					}
					if err != nil {
						continue
					}
					s.check(t, w, way, report)
					if stop := stopOf(report); stop != nil && report.Result.ExitCode() == 1 && !w.isOfTheHub(t, *stop) {
						if text := fmt.Sprintf("%s: %s\n-> %s\n", stop.Object, stop.Text(time.Now()), strings.Join(stop.Actions, " ")); !seen[text] {
							seen[text] = true
							fmt.Fprintf(&texts, "# %s, %s: %s\n%s\n", s.name, way, stop.Verdict, text)
						}
					}
				}
			})
		})
	}
	golden(t, "stops", texts.String())
}

// check checks what holds for every report.
func (s state) check(t *testing.T, w *world, way string, r explain.Report) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("explain %s: "+format+":\n%s", append(append([]any{way}, args...), r.Text(statustable.Style{}, true))...)
	}
	if got, want := r.Result.ExitCode(), exitCodes[string(r.Result)]; got != want {
		fail("exit code %d, want %d", got, want)
	}
	findings := []diagnosis.Diagnosis{}
	if r.Stop != nil {
		findings = append(findings, *r.Stop)
	}
	for _, v := range r.Volumes {
		if (v.Result == isAttached || v.Result == isUnknown) && v.Stop != nil || (v.Result == "waiting" || v.Result == "attention" || v.Result == "standby") && v.Stop == nil {
			fail("it is %s and stops at %v", v.Result, v.Stop)
		}
		if v.Stop != nil {
			findings = append(findings, *v.Stop)
		}
		findings = append(findings, v.Notes...)
	}
	for _, f := range findings {
		if first := []rune(strings.Join(f.Actions, " ")); len(first) > 0 && (!unicode.IsUpper(first[0]) || !strings.HasSuffix(strings.Join(f.Actions, " "), ".")) || f.Object == "" || f.Text(time.Now()) == "" {
			fail("%+v lacks something, or its next step is not an imperative with a full stop", f)
		}
		if strings.HasPrefix(f.Text(time.Now()), "does not exist") && w.exists(f.Object) {
			fail("%s is there, and called missing", f.Object)
		}
	}
	if r.Result == explain.NotFound {
		return
	}
	if s.unknown == "" && len(r.Unknown) > 0 || r.Result == isUnknown && len(r.Unknown) == 0 {
		fail("it says that it does not know %q", r.Unknown)
	}
	for word := range strings.SplitSeq(s.unknown, "|") {
		if !strings.Contains(strings.Join(r.Unknown, "\n"), word) {
			fail("%q is not in what it does not know", word)
		}
	}
}
