package volume_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

const modelDriver = "pass.example.com"

// modelSecret is one for all models: their states are compared as texts, with its address.
var modelSecret = &corev1.SecretReference{Namespace: "ns", Name: "secret"}

// target is the volume of all these tests at a node ID.
func target(nodeID string) attach.Target {
	return attach.Target{VolumeHandle: "v", NodeID: nodeID}
}

// runModel is one VolumeAttachment, what it depends on, and the storage system, as far as they matter to
// passes. It carries out what the Table says, as an executor does, and checks each effect against
// what it knows itself. What happens is up to a script.
type runModel struct {
	*script
	decider attach.Driver
	va      *storagev1.VolumeAttachment // nil: gone
	pv      *corev1.PersistentVolume
	nodeID  string
	table   *volume.Table
	known   *volume.Attachment
	truth   map[attach.Target]truth

	// Of the pass.
	current    volume.Run
	effect     volume.Effect
	secretRead bool
	released   bool
	owners     map[attach.Target]volume.Ownership
}

// truth is how it stands with the volume at one target.
type truth struct {
	May      bool // it may be published: a publish began, and no unpublish has succeeded since
	Done     bool // a publish succeeded, and its context was not refused
	Gone     bool // an unpublish succeeded here, and no call began since
	Left     bool // a Leave has made it dangling
	Lost     bool // after that the process ended: nobody knows of it any more
	Refusals int  // answers of unpublishes in a row, here as the previous target, that were errors; 3 at most
}

func newRunModel(s *script, edit func(*runModel)) *runModel {
	m := &runModel{script: s, nodeID: "id-1", truth: map[attach.Target]truth{},
		decider: attach.Driver{Name: modelDriver, Capabilities: csiclient.Capabilities{PublishUnpublish: true}},
		va: &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "uid"},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: modelDriver, NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}},
		pv: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: modelDriver, VolumeHandle: "v", ControllerPublishSecretRef: modelSecret}}}}}
	if edit != nil {
		edit(m)
	}
	m.begin()
	return m
}

// begin is the begin of a process.
func (m *runModel) begin() {
	m.table = volume.NewTable(attach.Finalizer(modelDriver))
	m.table.Queue.Begin()
	m.table.Queue.SetLimits(queue.Limits{Workers: 1})
	m.known = m.table.Open(m.va)
}

func (m *runModel) inputs() attach.Inputs {
	var published *attach.Record
	b := m.table.Look(m.va.Name, m.va.UID)
	if b.Belief == volume.Published {
		published = &b.Record
	}
	return attach.Inputs{VolumeAttachment: m.va, PersistentVolume: attach.VolumeOf(m.pv), Lost: b.Lost, Unpublished: m.va.Status.Attached && b.Belief == volume.Unpublished, Published: published, CSINode: &storagev1.CSINode{
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: modelDriver, NodeID: m.nodeID}}}}}
}

// run does one thing after the other until the VolumeAttachment is gone. The first is a pass.
func (m *runModel) run() {
	things := []func(){m.work, m.renumber, m.delete, m.restart, m.vanish, m.changeAttachRequired}
	for m.va != nil {
		m.effect, m.current, m.secretRead, m.released, m.owners = volume.Effect{}, volume.Run{}, false, false, map[attach.Target]volume.Ownership{}
		things[m.choose(m, between, len(things))]()
	}
}

func (m *runModel) renumber() {
	m.log("the node gets another ID")
	m.nodeID = map[string]string{"id-1": "id-2", "id-2": "id-1"}[m.nodeID]
}

func (m *runModel) changeAttachRequired() {
	m.log("attachRequired becomes %v", m.decider.NoAttach)
	m.decider.NoAttach = !m.decider.NoAttach
}

func (m *runModel) delete() {
	m.log("deleted")
	m.va.DeletionTimestamp = &metav1.Time{}
	if len(m.va.Finalizers) == 0 {
		m.va.DeletionTimestamp = nil // the last state that the watch reports has none
		m.vanish()
	}
}

// restart ends the process, whatever it does, and begins another one.
func (m *runModel) restart() {
	m.log("another process begins")
	noted := attach.NotedTarget(m.va)
	for at, is := range m.truth {
		tells := at == noted && (m.hasFinalizer() || m.va.Status.Attached)
		if !tells && !m.isSeenTo(at) {
			m.fail("the volume may be published at %s, and the object does not tell", at.NodeID)
		}
		m.truth[at] = truth{May: is.May, Lost: !tells && (is.Left || is.Lost)}
	}
	m.begin()
}

// vanish ends the VolumeAttachment.
func (m *runModel) vanish() {
	m.log("gone")
	var last *attach.Record
	if r, ok := m.decider.LastRecorded(m.inputs()); ok {
		last = &r
	}
	m.table.Gone(volume.IdentityOf(m.va), last, false)
	m.va = nil
	for at, is := range m.truth {
		_, dangling := m.table.Dangling(at)
		if is.May && !is.Lost && m.owners[at] != volume.Owned && !dangling {
			m.fail("the volume may be published at %s, and is not detached", at.NodeID)
		}
		if is.Gone && dangling {
			m.fail("the volume was unpublished at %s, and is unpublished again", at.NodeID)
		}
	}
}

// work is one run of a worker.
func (m *runModel) work() {
	for n := 0; ; n++ {
		if !m.look() {
			return
		}
		m.effect = m.table.NextEffect(m.known, m.current)
		if m.effect.Kind == volume.Finished {
			return
		}
		if n > 12 {
			m.fail("the run does not end")
		}
		m.check()
		m.table.Start(m.known, m.current, m.effect)
		o, failed, alive := m.happen()
		if !alive {
			return
		}
		m.table.Apply(m.known, &m.current, m.effect, o)
		m.checkBelief()
		if m.va == nil || failed && m.table.NextEffect(m.known, m.current).Kind != volume.Disown {
			return
		}
	}
}

// look makes the plan for the objects as they are, and reports whether there is something to do.
func (m *runModel) look() bool {
	if m.current.Removed {
		return true
	}
	m.known = m.table.Open(m.va)
	if r, ok := m.decider.Recorded(m.inputs()); ok {
		m.table.Restore(m.known, r)
	}
	before := m.current.Plan.Operation
	var err error
	if m.current.Plan, err = m.decider.Decide(m.inputs()); err != nil {
		m.fail("%v", err)
	}
	if m.current.Plan.Operation == attach.Idle && before == attach.Idle {
		m.log("nothing to do")
	}
	return m.current.Plan.Operation != attach.Idle
}

// happen lets an effect have its consequences. It returns its outcome, whether that is an error, and
// whether the process lives on.
func (m *runModel) happen() (o volume.Outcome, failed, alive bool) {
	at := m.effect.Target
	is := m.truth[at]
	var ends []end
	written := func(write func()) []end {
		return []end{{"done", volume.Succeeded, write}, {"not written", volume.NotDone, nil},
			{"written, the answer is lost", volume.NotDone, write}, {"written, the process ends", ended, write}}
	}
	switch m.effect.Kind {
	case volume.FindOwners:
		names := []string{"no owner", "wanted", "owned", "unclear", "unclear, as reads fail"}
		n := m.choose(m, "owners", len(names))
		o.Owner = []volume.Ownership{volume.NoOwner, volume.Wanted, volume.Owned, volume.Unclear, volume.Unclear}[n]
		if n == 4 {
			o.Result = volume.NotDone
		} else {
			m.owners[at] = o.Owner
		}
		m.log("owners at %s: %s", at.NodeID, names[n])
		return o, n == 4, true
	case volume.ReadSecret:
		ends = []end{{"done", volume.Succeeded, func() { m.secretRead = true }}, {"not found", volume.NotDone, nil}}
	case volume.AddFinalizers:
		ofVolume := func() { m.pv.Finalizers = []string{attach.Finalizer(modelDriver)} }
		ofAttachment := func() {
			if !m.hasFinalizer() {
				m.va.Finalizers = append(m.va.Finalizers, attach.Finalizer(modelDriver))
			}
			m.va.Annotations = map[string]string{attach.AnnotationNodeID: at.NodeID, attach.AnnotationVolumeHandle: at.VolumeHandle}
		}
		ends = append(written(func() { ofVolume(); ofAttachment() }), end{"volume only", volume.NotDone, ofVolume},
			end{"VolumeAttachment only", volume.NotDone, ofAttachment}, end{"forbidden", volume.Rejected, nil})
	case volume.Publish:
		is = truth{May: true}
		ends = []end{{"done", volume.Succeeded, func() { is.Done = true }}, {"error", volume.Failed, nil},
			{"not called or cut off", volume.NotDone, nil}, {"the process ends", ended, nil}}
		o.Context, o.Secrets = map[string]string{"key": "value"}, map[string]string{"password": "hunter22"}
	case volume.MarkAttached:
		ends = append(written(func() { m.va.Status.Attached = true }), end{"too large", volume.Rejected, func() { is.Done = m.current.Plan.Target.VolumeHandle == "" }})
	case volume.Unpublish:
		gone := func() { is = truth{Gone: true} }
		refused := func() {
			if at != m.current.Plan.Target {
				is.Refusals = min(is.Refusals+1, 3)
			}
		}
		ends = []end{{"done", volume.Succeeded, gone}, {"error", volume.Failed, refused},
			{"not called or cut off", volume.NotDone, nil}, {"not called, no secret", volume.Rejected, nil}, {"done, the process ends", ended, gone}}
	case volume.Disown:
		ends = []end{{"done", volume.Succeeded, func() { is.Left, is.Refusals = true, 0 }}}
	case volume.RemoveFinalizer:
		if _, known := m.truth[at]; known && m.owners[at] == volume.Owned { // the other one may detach it from now on
			is.Done = false
			m.truth[at] = is
		}
		ends = written(func() {
			m.va.Finalizers = slices.DeleteFunc(m.va.Finalizers, func(f string) bool { return f == attach.Finalizer(modelDriver) })
			m.released = true
			if m.owners[at] == volume.Owned {
				m.forgetGone()
				delete(m.truth, at) // it is the other one's to detach
			}
		})
	case volume.MarkDetached:
		ends = written(func() {
			m.va.Status.Attached = false
			for at, is := range m.truth { // with the publish context, unless the process has it still
				is.Done = is.Done && m.table.Look(m.va.Name, m.va.UID).Context != nil
				m.truth[at] = is
			}
		})
	case volume.LookAgain:
		ends = []end{{"later", volume.NotDone, nil}}
	}
	e := ends[m.choose(m, "end", len(ends))]
	m.log("%s %s: %s", effectName(m.effect.Kind), at.NodeID, e.name)
	if e.does != nil {
		e.does()
	}
	if m.effect.Kind == volume.Publish || m.effect.Kind == volume.Unpublish && is.Gone {
		m.forgetGone()
	}
	if m.effect.Kind == volume.Publish || m.effect.Kind == volume.Unpublish || m.effect.Kind == volume.MarkAttached || m.effect.Kind == volume.Disown {
		m.truth[at] = is
	}
	deleted := m.effect.Kind == volume.RemoveFinalizer && m.va.DeletionTimestamp != nil && len(m.va.Finalizers) == 0
	if e.result == ended {
		if deleted {
			m.va = nil
		} else {
			m.restart()
		}
		return o, true, false
	}
	o.Result, o.Alive = e.result, !deleted
	if deleted {
		m.table.Apply(m.known, &m.current, m.effect, o)
		m.vanish()
		return o, false, false
	}
	return o, e.result != volume.Succeeded, true
}

// forgetGone drops what is known of unpublishes: an Attachment remembers the last one.
func (m *runModel) forgetGone() {
	for at, is := range m.truth {
		is.Gone = false
		m.truth[at] = is
	}
}

// end is one of the ways in which an effect may end.
type end struct {
	name   string
	result volume.Result
	does   func()
}

// ended is the Result where the process ends.
const ended volume.Result = -1
