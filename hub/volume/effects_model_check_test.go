package volume_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// check checks what must hold when an effect begins.
func (m *runModel) check() {
	m.begun(m.effect.Kind)
	at, is := m.effect.Target, m.truth[m.effect.Target]
	noted, owner := attach.NotedTarget(m.va), m.owners[at]
	attaching := m.current.Plan.Operation == attach.Attaching
	calls := m.current.Plan.Target.VolumeHandle != ""
	must := func(ok bool, what string) {
		if !ok {
			m.fail("%s at %q: %s", effectName(m.effect.Kind), at.NodeID, what)
		}
	}
	elsewhere := func() bool { // no other target needs a detach that nobody would make
		for other := range m.truth {
			if other != at && !m.isSeenTo(other) {
				return false
			}
		}
		return true
	}
	switch m.effect.Kind {
	case volume.AddFinalizers:
		must(m.secretRead || !calls, "the secret was not read before")
		must(noted == (attach.Target{}) || noted == at || !calls || m.isSeenTo(noted), "the note of another target goes, where the volume may be published")
	case volume.Publish:
		must(attaching && m.va.DeletionTimestamp == nil, "not asked for")
		must(m.secretRead, "the secret was not read")
		must(m.hasFinalizer() && noted == at && len(m.pv.Finalizers) > 0, "finalizers and note are not there")
		must(!is.Done || is.Left, "it has succeeded before")
		must(elsewhere(), "it may be published elsewhere")
	case volume.MarkAttached:
		must(!calls || is.Done && m.hasFinalizer() && noted == at, "nothing was published")
		must(!calls || m.table.Look(m.va.Name, m.va.UID).Context["key"] == "value", "without the publish context")
	case volume.Unpublish:
		must(owner != volume.NotRead && owner < volume.Unclear, "there may be an owner")
		must(attaching || m.va.DeletionTimestamp != nil || !m.va.Status.Attached, "the status says attached, and the object is not being deleted")
		must(!attaching || owner != volume.Wanted, "it is wanted there")
		must(!is.Gone, "it has succeeded before")
	case volume.Disown:
		enough := map[bool]int{true: 1, false: 3}[attaching]
		must(owner > volume.Wanted || attaching && owner == volume.Wanted || is.Refusals >= enough, "the driver was not asked often enough")
	case volume.RemoveFinalizer:
		must(!calls || is.Gone || owner == volume.Owned, "no unpublish has succeeded")
		must(!calls || elsewhere(), "it may be published elsewhere")
	case volume.MarkDetached:
		must(m.va.Status.Attached || m.released, "it is written already")
		must(m.va.DeletionTimestamp == nil || !m.hasFinalizer(), "the finalizer is there, and the object is being deleted")
	case volume.LookAgain:
		must(owner == volume.Unclear, "it is clear")
	}
}

func (m *runModel) hasFinalizer() bool {
	return attach.HasFinalizer(m.va.Finalizers, attach.Finalizer(modelDriver))
}

// isSeenTo reports whether the VolumeAttachment need not see to a target: it is not published there, is dangling,
// or nobody can know of it.
func (m *runModel) isSeenTo(at attach.Target) bool {
	is := m.truth[at]
	return !is.May || is.Left || is.Lost || m.owners[at] == volume.Owned
}

// checkBelief checks that what the storage system may have published is known, and what it has not.
func (m *runModel) checkBelief() {
	believed := *m.known
	for at, is := range m.truth {
		known := believed.Target == at && believed.MayBePublished()
		if !m.isSeenTo(at) && !known {
			m.fail("the volume may be published at %s, and this is not known: %+v", at.NodeID, believed)
		}
		if is.Gone && known {
			m.fail("the volume was unpublished at %s, and this is not known: %+v", at.NodeID, believed)
		}
		u, dangling := m.table.Dangling(at)
		if dangling != is.Left || dangling && (u.FormerOwner.UID != m.va.UID || !slices.Contains(believed.Disowned, at)) {
			m.fail("at %s dangling: %v, want %v: %+v", at.NodeID, dangling, is.Left, u)
		}
		if is.Gone && believed.Target == at && believed.Secrets != nil {
			m.fail("the secrets are kept of what was unpublished")
		}
	}
	if believed.Belief == volume.Recorded && believed.Context != nil {
		m.fail("the publish context is kept although the status has it")
	}
}

// checkEnd checks what two passes have led to in which nothing went wrong. Without our finalizer before
// them there was nothing to detach.
func (m *runModel) checkEnd(wasGuarded bool) {
	if m.va == nil {
		return
	}
	if m.va.DeletionTimestamp == nil && !m.decider.NoAttach {
		if noted := attach.NotedTarget(m.va); !m.va.Status.Attached || !m.hasFinalizer() || !m.truth[noted].May || m.truth[noted].Left {
			m.fail("not attached: %+v at %v, %+v", m.va.Status, noted, m.truth)
		}
		return
	}
	for at := range m.truth {
		if wasGuarded && (m.hasFinalizer() || !m.isSeenTo(at) || m.va.Status.Attached) {
			m.fail("not detached at %s: %v %+v, %+v", at.NodeID, m.va.Finalizers, m.va.Status, m.truth)
		}
	}
}

func effectName(k volume.EffectKind) string {
	return []string{"Finished", "FindOwners", "ReadSecret", "AddFinalizers", "Publish", "MarkAttached", "Unpublish", "Disown", "RemoveFinalizer", "MarkDetached", "LookAgain"}[k]
}

// key is the same for equal states only.
func (m *runModel) key() string {
	b, run := &strings.Builder{}, m.current
	run.Plan = attach.Plan{Operation: run.Plan.Operation, Record: attach.Record{Target: run.Plan.Target}} // the rest is that of the objects
	fmt.Fprintf(b, "%v %+v %v %v %+v %+v", m.nodeID, m.decider.NoAttach, m.secretRead, m.released, m.effect, run)
	for _, at := range []attach.Target{target("id-1"), target("id-2")} {
		_, dangling := m.table.Dangling(at)
		fmt.Fprintf(b, " %+v %v %v %v", m.truth[at], m.owners[at], dangling, slices.Contains(m.known.Disowned, at))
	}
	fmt.Fprintf(b, " %v %v %v %v %v %v", m.va.Finalizers, m.va.Annotations, m.va.DeletionTimestamp != nil, m.va.Status.Attached, m.pv.Finalizers, m.table.FinalizerWasRemoved(m.va.UID))
	fmt.Fprintf(b, " %+v", *m.known)
	return b.String()
}
