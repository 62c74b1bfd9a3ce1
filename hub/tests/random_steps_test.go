package tests

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// newTrial makes the objects of a trial and starts its replicas.
func newTrial(v *virtual, seed uint64, logs bool) *trial {
	random := rand.New(rand.NewPCG(seed, 1))
	t := &trial{virtual: v, scenario: scenario(seed % uint64(scenarios)), random: random, faults: rand.New(rand.NewPCG(seed, 2)), unowned: rand.New(rand.NewPCG(seed, 3)), others: rand.New(rand.NewPCG(seed, 4)), logs: logs,
		held: map[string]bool{}, began: time.Now(), definitive: 8, contested: map[string]bool{}, metFault: map[string]time.Time{}, unnamed: map[string]time.Time{}, atOnce: map[string]int{}}
	v.observe, v.violates = t.saw, true // saw judges them
	v.driver.ParallelMultiNode = random.IntN(4) > 0
	v.driver.Timeout = []time.Duration{10 * time.Second, 2 * time.Minute}[random.IntN(2)]
	if t.unowned.IntN(2) == 0 {
		v.driver.Drift.Unexpected = registry.UnexpectedDetach
	}
	v.driver.Workers = []int{2, 20}[random.IntN(2)]
	latency := []time.Duration{0, 0, 200 * time.Millisecond, 3 * time.Second}[random.IntN(4)]
	v.setKnobs(fakecsi.AttachLatency(fakecsi.Latency{Base: latency}))
	for i := range 3 + random.IntN(2) {
		n := &trialNode{name: fmt.Sprintf("n%d", i), id: fmt.Sprintf("n%d-id0", i)}
		v.register(n.name, n.id)
		t.nodes = append(t.nodes, n)
	}
	for i := range 2 + random.IntN(4) {
		volume := trialVolume{name: fmt.Sprintf("v%d", i), multiNode: i%3 == 0}
		t.volumes = append(t.volumes, volume)
		t.makeVolume(volume)
	}
	t.say("seed %d, scenario %d, timeout %v, workers %d, latency %v, parallelMultiNode %v, drift.unexpected %s",
		seed, t.scenario, v.driver.Timeout, v.driver.Workers, latency, v.driver.ParallelMultiNode, v.driver.Drift.Unexpected)
	for i := range map[scenario]int{alone: 1, leased: 1, replicas: 2}[t.scenario] {
		t.replicas = append(t.replicas, &replica{trial: t, name: fmt.Sprintf("hub%d", i)})
		t.replicas[i].start()
	}
	t.pass(time.Second)
	return t
}

func (t *trial) makeVolume(volume trialVolume) {
	mode := corev1.ReadWriteOnce
	if volume.multiNode {
		mode = corev1.ReadWriteMany
	}
	t.volume(volume.name, mode)
}

// step is one kind of step.
type step struct {
	weight int
	only   []scenario // none: all
	take   func(*trial)
}

var steps = []step{
	{weight: 26, take: (*trial).createAttachment},
	{weight: 18, take: (*trial).deleteSome},
	{weight: 10, take: (*trial).moveSome},
	{weight: 4, take: (*trial).deletePersistentVolume},
	{weight: 4, take: (*trial).changeNodeID},
	{weight: 5, take: (*trial).stripSome, only: []scenario{alone, leased}},
	{weight: 8, take: (*trial).failCalls},
	{weight: 4, take: (*trial).hangCalls},
	{weight: 3, take: (*trial).disconnect},
	{weight: 2, take: (*trial).refuseConnections},
	{weight: 2, take: (*trial).notReady},
	{weight: 6, take: (*trial).failAPI},
	{weight: 4, take: (*trial).holdWatches},
	{weight: 4, take: (*trial).loseLease, only: []scenario{leased, replicas}},
	{weight: 7, take: (*trial).endReplica, only: []scenario{replicas}},
}

// takeStep takes one step that is drawn.
func (t *trial) takeStep() {
	possible := slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return len(s.only) > 0 && !slices.Contains(s.only, t.scenario) })
	sum := 0
	for _, s := range possible {
		sum += s.weight
	}
	draw := t.random.IntN(sum)
	for _, s := range possible {
		if draw -= s.weight; draw < 0 {
			s.take(t)
			return
		}
	}
}

// attachBehindTheBack attaches a volume at a node, at times, without a VolumeAttachment and without a call.
func (t *trial) attachBehindTheBack() {
	if t.driver.Drift.Unexpected != registry.UnexpectedDetach || t.unowned.IntN(8) > 0 {
		return
	}
	volume, node := t.volumes[t.unowned.IntN(len(t.volumes))], t.nodes[t.unowned.IntN(len(t.nodes))]
	t.say("STEP %s is attached at %s by hand", volume.name, node.id)
	if t.unowned.IntN(2) == 0 {
		t.say("STEP the kubelet of %s uses %s", node.name, volume.name)
		t.inUse(node.name, volume.name)
	} else {
		t.inUse(node.name)
	}
	t.attachByHand(volume.name, node.id)
}

// changeAttachRequired has somebody create the CSIDriver again with attachRequired: false, at times, and correct that later.
func (t *trial) changeAttachRequired() {
	if t.others.IntN(20) > 0 || t.noAttach {
		return
	}
	t.say("STEP attachRequired is false")
	t.noAttach = true
	t.mu.Lock()
	t.everUnrequired = true
	t.mu.Unlock()
	t.attachRequired(false)
	t.ends = append(t.ends, faultEnd{t.step + 1 + t.others.IntN(4), func() {
		t.say("STEP attachRequired is true")
		t.noAttach = false
		t.attachRequired(true)
	}})
}

// usesFor has the kubelet of a node use a volume for some steps.
func (t *trial) usesFor(node, volume string) {
	t.say("STEP the kubelet of %s uses %s", node, volume)
	t.inUse(node, volume)
	t.ends = append(t.ends, faultEnd{t.step + 1 + t.others.IntN(8), func() {
		t.say("STEP the kubelet of %s uses nothing", node)
		t.inUse(node)
	}})
}

// uses says whether the kubelet of a node uses a volume.
func (t *trial) uses(node, volume string) bool {
	n, err := t.kube.CoreV1().Nodes().Get(t.t.Context(), node, metav1.GetOptions{})
	return err == nil && slices.Contains(n.Status.VolumesInUse, usedAs(volume))
}

// nodeNow returns the node that has a node ID now, "" if none has it. Nodes exchange their IDs, so it may be another
// node than the one that had the ID when a volume was attached. It may be called from any goroutine.
func (t *trial) nodeNow(nodeID string) string {
	for _, n := range t.nodes {
		registered, err := t.kube.StorageV1().CSINodes().Get(t.t.Context(), n.name, metav1.GetOptions{})
		if id, ok := attach.NodeID(registered, virtualDriver); err == nil && ok && id == nodeID {
			return n.name
		}
	}
	return ""
}

// mayStay says whether the hub may leave a volume at a node ID that was attached there by hand: it is no volume or node of
// this cluster any more, or a VolumeAttachment names the node that has the node ID now.
func (t *trial) mayStay(volume, nodeID string) bool {
	i := slices.IndexFunc(t.nodes, func(n *trialNode) bool { return n.id == nodeID })
	return i < 0 || t.isDeleted(volume) || t.uses(t.nodes[i].name, volume) ||
		slices.ContainsFunc(t.attachmentsOf(volume), func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName == t.nodes[i].name })
}

// isBlocked says whether a volume is at a node ID where it was attached by hand, and where the hub may leave it.
func (t *trial) isBlocked(volume string) bool {
	for nodeID, at := range t.backend.Books().Attached[volume] {
		if at.Foreign && t.mayStay(volume, nodeID) {
			return true
		}
	}
	return false
}

// later ends a fault after some steps.
func (t *trial) later(end func()) {
	t.ends = append(t.ends, faultEnd{t.step + 1 + t.random.IntN(8), end})
}

// endFaults ends the faults that end at a step or before.
func (t *trial) endFaults(step int) {
	due := t.ends
	t.ends = nil
	for _, e := range due {
		if e.step > step {
			t.ends = append(t.ends, e)
		} else {
			e.end()
		}
	}
}

// heal ends what has no end of its own.
func (t *trial) heal() {
	t.setKnobs(healed)
	for _, r := range t.replicas {
		r.start()
	}
	for _, n := range t.nodes { // a node may have another node ID since a volume was used there, where the hub has attached it meanwhile
		t.inUse(n.name)
	}
}

// createAttachment asks for a volume on a node, as kube-controller-manager does: for a single-node volume
// not before it has deleted the VolumeAttachment on the other node. Rarely somebody does not wait.
func (t *trial) createAttachment() {
	t.ask(t.volumes[t.random.IntN(len(t.volumes))], t.random.IntN(100) == 0)
}

// ask asks for a volume on a node that is drawn. A hasty one does not wait until the volume is asked for
// nowhere else.
func (t *trial) ask(volume trialVolume, hasty bool) {
	node := t.nodes[t.random.IntN(len(t.nodes))]
	va := t.attachmentOf(volume.name, node.name)
	if volume.multiNode && t.random.IntN(8) == 0 {
		va = t.byHand(volume.name, node.name)
	}
	for _, other := range t.attachmentsOf(volume.name) {
		if other.Name == va.Name {
			return
		}
		if !volume.multiNode && other.DeletionTimestamp == nil {
			if !hasty {
				return
			}
			t.mu.Lock()
			t.contested[volume.name] = true
			t.mu.Unlock()
		}
	}
	if !t.hasVolume(volume.name) {
		t.say("STEP create PersistentVolume %s", volume.name)
		t.makeVolume(volume)
	}
	t.say("STEP create VolumeAttachment %s", va.Name)
	t.create(va)
	t.lookForUnnamed()
}

// deleteSome deletes a VolumeAttachment.
func (t *trial) deleteSome() {
	if va, ok := t.one(func(va storagev1.VolumeAttachment) bool { return va.DeletionTimestamp == nil }); ok {
		t.deleteAttachment(va)
	}
}

// moveSome deletes a VolumeAttachment and asks for its volume on another node at once.
func (t *trial) moveSome() {
	if va, ok := t.one(func(va storagev1.VolumeAttachment) bool { return va.DeletionTimestamp == nil }); ok {
		t.deleteAttachment(va)
		t.ask(trialVolume{name: volumeOf(va), multiNode: t.isMultiNode(volumeOf(va))}, false)
	}
}

func (t *trial) deleteAttachment(va storagev1.VolumeAttachment) {
	t.say("STEP delete VolumeAttachment %s", va.Name)
	t.delete(testbed.VolumeAttachment{Name: va.Name})
	t.lookForUnnamed()
}

// one draws one of the VolumeAttachments of a kind.
func (t *trial) one(kind func(storagev1.VolumeAttachment) bool) (storagev1.VolumeAttachment, bool) {
	all := slices.DeleteFunc(t.attachments(), func(va storagev1.VolumeAttachment) bool { return !kind(va) })
	if len(all) == 0 {
		return storagev1.VolumeAttachment{}, false
	}
	return all[t.random.IntN(len(all))], true
}

func (t *trial) deletePersistentVolume() {
	volume := t.volumes[t.random.IntN(len(t.volumes))]
	t.say("STEP delete PersistentVolume %s", volume.name)
	t.delete(testbed.PersistentVolume{Name: volume.name})
}

// changeNodeID has a node register under another ID: a new one, one that it had before, or that of another node,
// which then has this one's.
func (t *trial) changeNodeID() {
	n, other := t.nodes[t.random.IntN(len(t.nodes))], t.nodes[t.random.IntN(len(t.nodes))]
	id := fmt.Sprintf("%s-id%d", n.name, t.random.IntN(3))
	for _, taken := range t.nodes {
		if taken.id == id {
			return
		}
	}
	if t.scenario == replicas && t.hasTraces(n) {
		return
	}
	if t.scenario != replicas && n != other && t.random.IntN(2) == 0 {
		id, other.id = other.id, n.id
		t.say("STEP node %s registers as %s", other.name, other.id)
		t.register(other.name, other.id)
	}
	n.id = id
	t.say("STEP node %s registers as %s", n.name, n.id)
	t.register(n.name, n.id)
}

// hasTraces says whether something is published at a node, or a VolumeAttachment is about it.
func (t *trial) hasTraces(n *trialNode) bool {
	for _, at := range t.backend.Books().Attached {
		if _, published := at[n.id]; published {
			return true
		}
	}
	return slices.ContainsFunc(t.attachments(), func(va storagev1.VolumeAttachment) bool { return va.Spec.NodeName == n.name })
}

// stripSome takes the finalizers from a VolumeAttachment, mostly from one that is being deleted.
func (t *trial) stripSome() {
	deleted := t.random.IntN(3) > 0
	va, ok := t.one(func(va storagev1.VolumeAttachment) bool {
		return len(va.Finalizers) > 0 && (va.DeletionTimestamp != nil) == deleted
	})
	if !ok || t.held["volumeattachments"] || !t.replicas[0].works() {
		return
	}
	if !deleted && va.Status.Attached && guarded(va) && t.others.IntN(2) == 0 {
		t.usesFor(va.Spec.NodeName, volumeOf(va))
	}
	t.say("STEP strip the finalizers of VolumeAttachment %s", va.Name)
	t.mu.Lock()
	t.strips++
	t.mu.Unlock()
	t.stripFinalizers(va.Name)
	if !deleted {
		t.deleteAttachment(va)
	}
	t.lookForUnnamed()
	t.pass(time.Second) // the watch tells it
}

// lookForUnnamed notes since when no VolumeAttachment names a volume.
func (t *trial) lookForUnnamed() {
	claimed := map[string]bool{}
	for _, va := range t.attachments() {
		claimed[volumeOf(va)] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, volume := range t.volumes {
		if claimed[volume.name] {
			delete(t.unnamed, volume.name)
		} else if t.unnamed[volume.name].IsZero() {
			t.unnamed[volume.name] = time.Now()
		}
	}
	for volume := range t.contested {
		if !claimed[volume] {
			delete(t.contested, volume)
		}
	}
}

// isDeleted says whether a PersistentVolume is gone or is being deleted.
func (t *trial) isDeleted(volume string) bool {
	pv, err := t.kube.CoreV1().PersistentVolumes().Get(t.t.Context(), volume, metav1.GetOptions{})
	return err != nil || pv.DeletionTimestamp != nil
}

// failCalls makes the next calls of one volume fail, before or after their effect.
func (t *trial) failCalls() {
	all := []codes.Code{codes.Internal, codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.FailedPrecondition, codes.ResourceExhausted}
	fault := fakecsi.Fault{Volume: t.volumes[t.random.IntN(len(t.volumes))].name, Code: all[t.random.IntN(len(all))],
		Count: 1 + t.random.IntN(4), AfterEffect: t.random.IntN(2) == 0}
	if definitive := []codes.Code{codes.NotFound, codes.InvalidArgument}; t.random.IntN(5) == 0 && t.definitive > 0 {
		fault.Code, fault.Count = definitive[t.random.IntN(2)], 1+t.random.IntN(2)
		t.definitive -= fault.Count
	}
	t.say("STEP calls fail: %+v", fault)
	t.setKnobs(fakecsi.Knobs{Fail: []fakecsi.Fault{fault}})
}

// hangCalls makes the calls of one volume hang, or the Probes of the driver.
func (t *trial) hangCalls() {
	hang := fakecsi.Hang{Volume: t.volumes[t.random.IntN(len(t.volumes))].name, AfterEffect: t.random.IntN(2) == 0}
	if t.random.IntN(5) == 0 {
		hang = fakecsi.Hang{Method: fakecsi.Probe}
	}
	t.say("STEP calls hang: %+v", hang)
	t.setKnobs(fakecsi.Knobs{Hang: []fakecsi.Hang{hang}})
	t.later(func() {
		t.say("END calls do not hang any more: %+v", hang)
		t.setKnobs(fakecsi.Knobs{Release: []fakecsi.Hang{hang}})
	})
}

// disconnect breaks the connections of one replica, and the calls in flight with them.
func (t *trial) disconnect() {
	r := t.replicas[t.random.IntN(len(t.replicas))]
	t.say("STEP the connections of %s break", r.name)
	r.disconnect()
}

func (t *trial) refuseConnections() {
	if t.setRefused(true) {
		return
	}
	t.say("STEP the driver is away")
	for _, r := range t.replicas {
		r.disconnect()
	}
	t.later(func() {
		t.say("END the driver is back")
		t.setRefused(false)
	})
}

// setRefused says whether nobody answers at the driver's endpoint, and returns what was so before.
func (t *trial) setRefused(to bool) (was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, t.refused = t.refused, to
	return was
}

func (t *trial) notReady() {
	t.say("STEP the driver is not ready")
	yes, no := true, false
	t.setKnobs(fakecsi.Knobs{NotReady: &yes})
	t.later(func() {
		t.say("END the driver is ready")
		t.setKnobs(fakecsi.Knobs{NotReady: &no})
	})
}

func (t *trial) failAPI() {
	t.say("STEP requests to the API fail at times")
	t.setAPIFaults(true)
	t.later(func() {
		t.say("END requests to the API do not fail any more")
		t.setAPIFaults(false)
	})
}

func (t *trial) setAPIFaults(to bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.apiFaults = to
}

// holdWatches keeps the changes of one resource from all replicas. In the end they learn of them one by one, or
// have to list anew.
func (t *trial) holdWatches() {
	resource := []string{"volumeattachments", "volumeattachments", "persistentvolumes", "csinodes"}[t.random.IntN(4)]
	if t.held[resource] {
		return
	}
	t.say("STEP watches of %s are held", resource)
	t.held[resource] = true
	t.api.HoldWatches(resource)
	forget := t.random.IntN(3) == 0
	t.later(func() {
		t.say("END watches of %s go on, forgetful %v", resource, forget)
		t.held[resource] = false
		if forget {
			t.api.ForgetEvents()
		}
		t.api.ReleaseWatches(resource)
	})
}

// loseLease keeps one replica from renewing its leases.
func (t *trial) loseLease() {
	r := t.replicas[t.random.IntN(len(t.replicas))]
	t.say("STEP %s cannot renew leases", r.name)
	r.setLeaseCut(true)
	t.later(func() {
		t.say("END %s can renew leases", r.name)
		r.setLeaseCut(false)
	})
}

// endReplica stops or crashes a replica, and starts it again later.
func (t *trial) endReplica() {
	r := t.replicas[t.random.IntN(len(t.replicas))]
	if !r.runs() {
		return
	}
	if t.random.IntN(2) == 0 {
		t.say("STEP stop %s", r.name)
		r.stop()
	} else {
		t.say("STEP crash %s", r.name)
		r.crash()
	}
	t.later(r.start)
}
