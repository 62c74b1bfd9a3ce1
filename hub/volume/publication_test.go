package volume_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/hub/volume"
)

// opened is a Table with one VolumeAttachment.
type opened struct {
	*volume.Table
	known *volume.Attachment
}

func objectOf(name string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n"}}
}

func newOpened() opened {
	t := openTable(10, 0, false)
	return opened{t, t.Open(objectOf("va"))}
}

// attachAt and detachAt are plans with all their steps.
func attachAt(nodeID string) attach.Plan {
	return attach.Plan{Operation: attach.Attaching, Record: attach.Record{Target: target(nodeID), SecretRef: &corev1.SecretReference{Name: "secret"}, SecretKnown: true}, Publish: &csi.ControllerPublishVolumeRequest{}, AttachmentFinalizer: &attach.Patch{}, MarkAttached: true}
}

func detachAt(nodeID string) attach.Plan {
	return attach.Plan{Operation: attach.Detaching, Record: attach.Record{Target: target(nodeID)}}
}

// run makes a run for a plan, and returns its effects. They succeed and nobody else has the volume, unless outcomes
// say otherwise. The run ends with the first that does not succeed, as with an executor.
func (c opened) run(plan attach.Plan, outcomes map[volume.EffectKind]volume.Outcome) []string {
	var effects []string
	run := volume.Run{Plan: plan}
	for {
		e := c.NextEffect(c.known, run)
		if e.Kind == volume.Finished {
			return effects
		}
		name := effectName(e.Kind)
		if e.Target != plan.Target {
			name += " elsewhere"
		}
		effects = append(effects, name)
		if len(effects) > 20 {
			return effects
		}
		o, ok := outcomes[e.Kind]
		if !ok {
			o = volume.Outcome{Owner: volume.NoOwner}
		}
		c.Start(c.known, run, e)
		c.Apply(c.known, &run, e, o)
		if o.Result != volume.Succeeded && c.NextEffect(c.known, run).Kind != volume.Disown {
			return effects
		}
		switch e.Kind { // the objects as they are then
		case volume.AddFinalizers:
			run.Plan.VolumeFinalizer, run.Plan.AttachmentFinalizer = nil, nil
		case volume.MarkAttached:
			run.Plan = attach.Plan{}
		case volume.MarkDetached:
			run.Plan.StatusFirst = false
		}
	}
}

func TestEffectsOfARunComeInOrderAndNoneIsNeedless(t *testing.T) {
	type outcomes = map[volume.EffectKind]volume.Outcome
	failed, notDone := volume.Outcome{Result: volume.Failed}, volume.Outcome{Result: volume.NotDone}
	owned := outcomes{volume.FindOwners: {Owner: volume.Owned}}
	withoutCall := func(op attach.Operation) attach.Plan {
		return attach.Plan{Operation: op, MarkAttached: op == attach.Attaching}
	}
	guarded := attachAt("id-1")
	guarded.AttachmentFinalizer = nil
	for name, c := range map[string]struct {
		before func(opened)
		pass   attach.Plan
		out    outcomes
		want   []string
	}{
		"attach":                         {nil, attachAt("id-1"), nil, []string{"ReadSecret", "AddFinalizers", "Publish", "MarkAttached"}},
		"attach, finalizers there":       {nil, guarded, nil, []string{"ReadSecret", "Publish", "MarkAttached"}},
		"attach without a call":          {nil, withoutCall(attach.Attaching), nil, []string{"MarkAttached"}},
		"finalizer restored":             {nil, attach.Plan{Operation: attach.Attaching, AttachmentFinalizer: &attach.Patch{}}, nil, []string{"AddFinalizers"}},
		"attach, no secret":              {nil, attachAt("id-1"), outcomes{volume.ReadSecret: notDone}, []string{"ReadSecret"}},
		"attach, finalizers not written": {nil, attachAt("id-1"), outcomes{volume.AddFinalizers: notDone}, []string{"ReadSecret", "AddFinalizers"}},
		"attach, publish fails":          {nil, attachAt("id-1"), outcomes{volume.Publish: failed}, []string{"ReadSecret", "AddFinalizers", "Publish"}},
		"attach after the status was not written": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.MarkAttached: notDone}) },
			guarded, nil, []string{"MarkAttached"}},
		"attach after the status was not written, finalizer taken": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.MarkAttached: notDone}) },
			attachAt("id-1"), nil, []string{"AddFinalizers", "MarkAttached"}},
		"attach after the status was refused": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.MarkAttached: {Result: volume.Rejected}}) },
			attachAt("id-1"), nil, []string{"ReadSecret", "AddFinalizers", "Publish", "MarkAttached"}},
		"attach after the publish failed": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.Publish: failed}) },
			guarded, nil, []string{"ReadSecret", "Publish", "MarkAttached"}},
		"attach again what the storage has lost": {func(c opened) { c.run(attachAt("id-1"), nil) },
			attachAt("id-1"), nil, []string{"ReadSecret", "AddFinalizers", "Publish", "MarkAttached"}},
		"attach at another node ID": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.Publish: failed}) }, attachAt("id-2"), nil,
			[]string{"FindOwners elsewhere", "Unpublish elsewhere", "ReadSecret", "AddFinalizers", "Publish", "MarkAttached"}},
		"attach at another node ID, refused at the previous one": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.Publish: failed}) }, attachAt("id-2"),
			outcomes{volume.Unpublish: failed}, []string{"FindOwners elsewhere", "Unpublish elsewhere", "Disown elsewhere", "ReadSecret", "AddFinalizers", "Publish", "MarkAttached"}},
		"attach at another node ID, no answer at the previous one": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.Publish: failed}) }, attachAt("id-2"),
			outcomes{volume.Unpublish: notDone}, []string{"FindOwners elsewhere", "Unpublish elsewhere"}},
		"attach at another node ID, no secret for the previous one": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.Publish: failed}) }, attachAt("id-2"),
			outcomes{volume.Unpublish: {Result: volume.Rejected}}, []string{"FindOwners elsewhere", "Unpublish elsewhere"}},
		"attach at another node ID, owners at the previous one not readable": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.Publish: failed}) }, attachAt("id-2"),
			outcomes{volume.FindOwners: {Owner: volume.Unclear, Result: volume.NotDone}}, []string{"FindOwners elsewhere"}},
		"attach at another node ID, owned at the previous one": {func(c opened) { c.run(attachAt("id-1"), outcomes{volume.Publish: failed}) }, attachAt("id-2"),
			owned, []string{"FindOwners elsewhere", "Disown elsewhere", "ReadSecret", "AddFinalizers", "Publish", "MarkAttached"}},

		"detach": {nil, detachAt("id-1"), nil, []string{"FindOwners", "Unpublish", "RemoveFinalizer"}},
		"detach, status first": {nil, attach.Plan{Operation: attach.Detaching, Record: attach.Record{Target: target("id-1")}, StatusFirst: true}, nil,
			[]string{"MarkDetached", "FindOwners", "Unpublish", "RemoveFinalizer"}},
		"detach of what lives on":     {nil, detachAt("id-1"), outcomes{volume.RemoveFinalizer: {Alive: true}}, []string{"FindOwners", "Unpublish", "RemoveFinalizer", "MarkDetached"}},
		"detach without a call":       {nil, withoutCall(attach.Detaching), outcomes{volume.RemoveFinalizer: {Alive: true}}, []string{"RemoveFinalizer", "MarkDetached"}},
		"detach, error":               {nil, detachAt("id-1"), outcomes{volume.Unpublish: failed}, []string{"FindOwners", "Unpublish"}},
		"detach, wanted there":        {nil, detachAt("id-1"), outcomes{volume.FindOwners: {Owner: volume.Requested}}, []string{"FindOwners", "Unpublish", "RemoveFinalizer"}},
		"detach, owned by another":    {nil, detachAt("id-1"), owned, []string{"FindOwners", "RemoveFinalizer"}},
		"detach, owner not clear":     {nil, detachAt("id-1"), outcomes{volume.FindOwners: {Owner: volume.Unclear}, volume.LookAgain: notDone}, []string{"FindOwners", "LookAgain"}},
		"detach, owners not readable": {nil, detachAt("id-1"), outcomes{volume.FindOwners: {Owner: volume.Unclear, Result: volume.NotDone}}, []string{"FindOwners"}},
		"detach after the finalizer was not removed": {func(c opened) { c.run(detachAt("id-1"), outcomes{volume.RemoveFinalizer: notDone}) },
			detachAt("id-1"), nil, []string{"RemoveFinalizer"}},
		"detach at another node ID": {func(c opened) { c.run(attachAt("id-1"), nil) }, detachAt("id-2"), nil,
			[]string{"FindOwners elsewhere", "Unpublish elsewhere", "FindOwners", "Unpublish", "RemoveFinalizer"}},
		"detach at another node ID, refused at the previous one": {func(c opened) { c.run(attachAt("id-1"), nil) }, detachAt("id-2"),
			outcomes{volume.Unpublish: failed}, []string{"FindOwners elsewhere", "Unpublish elsewhere"}},
		"detach at another node ID, refused three times at the previous one": {func(c opened) {
			c.run(attachAt("id-1"), nil)
			c.run(detachAt("id-2"), outcomes{volume.Unpublish: failed})
			c.run(detachAt("id-2"), outcomes{volume.Unpublish: failed})
		}, detachAt("id-2"), outcomes{volume.Unpublish: failed}, []string{"FindOwners elsewhere", "Unpublish elsewhere", "Disown elsewhere", "FindOwners", "Unpublish"}},
		"detach at a third node ID, refused twice, after the first was left": {func(c opened) {
			c.run(attachAt("id-1"), outcomes{volume.Publish: failed})
			c.run(attachAt("id-2"), outcomes{volume.Unpublish: failed})
			c.run(detachAt("id-3"), outcomes{volume.Unpublish: failed})
		}, detachAt("id-3"), outcomes{volume.Unpublish: failed}, []string{"FindOwners elsewhere", "Unpublish elsewhere"}},
		"detach at a third node ID, refused once, after two refusals at the first": {func(c opened) {
			c.run(attachAt("id-1"), nil)
			c.run(detachAt("id-2"), outcomes{volume.Unpublish: failed})
			c.run(detachAt("id-2"), outcomes{volume.Unpublish: failed})
			c.run(detachAt("id-2"), outcomes{volume.RemoveFinalizer: notDone})
			c.run(attachAt("id-2"), nil) // attachRequired was false for a while
		}, detachAt("id-3"), outcomes{volume.Unpublish: failed}, []string{"FindOwners elsewhere", "Unpublish elsewhere"}},
		"detach at another node ID, wanted at the previous one": {func(c opened) { c.run(attachAt("id-1"), nil) }, detachAt("id-2"),
			outcomes{volume.FindOwners: {Owner: volume.Requested}}, []string{"FindOwners elsewhere", "Unpublish elsewhere", "FindOwners", "Unpublish", "RemoveFinalizer"}},
	} {
		t.Run(name, func(t *testing.T) {
			table := newOpened()
			if c.before != nil {
				c.before(table)
			}
			if got := table.run(c.pass, c.out); !slices.Equal(got, c.want) {
				t.Errorf("effects %v, want %v", got, c.want)
			}
		})
	}
}

func TestVolumeThatAnotherOwnsIsNotLeftToBeDetached(t *testing.T) {
	for name, c := range map[string]struct {
		owner volume.Ownership
		want  bool
	}{"owned": {volume.Owned, false}, "unclear": {volume.Unclear, true}} {
		t.Run(name, func(t *testing.T) {
			table := newOpened()
			table.run(attachAt("id-1"), nil)
			table.run(detachAt("id-1"), map[volume.EffectKind]volume.Outcome{volume.FindOwners: {Owner: c.owner}, volume.LookAgain: {Result: volume.NotDone}})
			table.Gone(table.known.Identity, nil, false)
			if _, dangling := table.Dangling(target("id-1")); dangling != c.want {
				t.Errorf("dangling when it is gone: %v, want %v", dangling, c.want)
			}
		})
	}
}

// The Secret may go before the volume (rook issue 16956): what attached it detaches it.
func TestSecretsOfTheLastPublishThatSucceededAreKeptUntilTheUnpublish(t *testing.T) {
	c := newOpened()
	publish := func(r volume.Result, secret string) {
		t.Helper()
		c.run(attachAt("id-1"), map[volume.EffectKind]volume.Outcome{
			volume.Publish:      {Result: r, Secrets: map[string]string{"password": secret}, Context: map[string]string{"of": secret}},
			volume.MarkAttached: {Result: volume.Rejected}, // so that it is published again
		})
	}
	want := func(when, secret string) {
		t.Helper()
		if got := c.known.Secrets["password"]; got != secret {
			t.Errorf("%s: %q is kept, want %q", when, got, secret)
		}
	}
	publish(volume.Failed, "never worked")
	want("nothing has succeeded", "")
	publish(volume.Succeeded, "first")
	want("published", "first")
	publish(volume.Failed, "rotated")
	want("a publish has failed", "first")
	publish(volume.Succeeded, "rotated")
	want("published again", "rotated")
	if p := c.known; p.Belief != volume.Uncertain || p.Context != nil {
		t.Errorf("%+v; want it uncertain without the publish context that was refused", p)
	}
	c.run(detachAt("id-1"), map[volume.EffectKind]volume.Outcome{volume.Unpublish: {Result: volume.Failed}})
	want("an unpublish has failed", "rotated")
	c.run(detachAt("id-1"), nil)
	want("unpublished", "")
}

func TestVolumeIsSharedOnlyIfItWasNotPublishedForASingleNode(t *testing.T) {
	for name, c := range map[string]struct {
		record attach.Record // of a publish that has failed
		want   bool          // beside a call on another node
	}{
		"many nodes":              {attach.Record{Target: target("id-1"), Nodes: attach.MultiNode}, true},
		"one node":                {attach.Record{Target: target("id-1"), Nodes: attach.SingleNode}, false},
		"unknown":                 {attach.Record{Target: target("id-1")}, true},
		"one node, other volume":  {attach.Record{Target: attach.Target{VolumeHandle: "other", NodeID: "id-1"}, Nodes: attach.SingleNode}, true},
		"one node, other node ID": {attach.Record{Target: target("id-3"), Nodes: attach.SingleNode}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := newOpened()
				table.Queue.SetLimits(queue.Limits{Workers: 10, PerNode: 0, Parallel: true})
				table.Restore(table.known, c.record)
				dest := func(nodeID string) queue.Destination { return queue.Destination{Target: target(nodeID), Shared: true} }
				table.Queue.Add(queue.AttachmentKey("other"), queue.AttachLane, dest("id-2"))
				if next(table.Table) == nil {
					t.Fatal("the first does not start")
				}
				// As the caches have it, and as its worker finds it.
				table.Queue.Add(queue.AttachmentKey("va"), queue.AttachLane, dest("id-1"))
				if got := next(table.Table) != nil; got != c.want {
					t.Errorf("starts beside the other: %v, want %v", got, c.want)
				}
				table.Open(objectOf("unread"))
				table.Queue.Add(queue.AttachmentKey("unread"), queue.AttachLane, queue.Destination{})
				e := next(table.Table)
				table.Restore(table.Open(objectOf("unread")), c.record)
				if got := table.Queue.MayCall(e, dest("id-3")); got != c.want {
					t.Errorf("goes on beside the other: %v, want %v", got, c.want)
				}
			})
		})
	}
}

// A dangling publication of another VolumeAttachment is no reason to forget what the objects record.
func TestPublicationIsRestoredExceptWhereTheVolumeAttachmentHasDisownedIt(t *testing.T) {
	for name, c := range map[string]struct {
		left string // by whom
		want bool
	}{"by nobody": {"", true}, "by another": {"another", true}, "by itself": {"va", false}} {
		t.Run(name, func(t *testing.T) {
			table := newOpened()
			known := table.Open(objectOf("va"))
			switch c.left {
			case "another":
				table.Gone(volume.IdentityOf(objectOf(c.left)), &attach.Record{Target: target("id-1")}, false)
			case "va":
				table.Restore(known, attach.Record{Target: target("id-1")})
				pass := volume.Run{Plan: attach.Plan{Operation: attach.Attaching, Record: attach.Record{Target: target("id-2")}}}
				table.Apply(known, &pass, volume.Effect{Kind: volume.Disown, Target: target("id-1")}, volume.Outcome{})
			}
			table.Restore(known, attach.Record{Target: target("id-1")})
			if p := *known; p.MayBePublished() != c.want {
				t.Errorf("restored: %+v, want %v", p, c.want)
			}
		})
	}
}

// target is the volume of all these tests at a node ID.
func target(nodeID string) attach.Target {
	return attach.Target{VolumeHandle: "v", NodeID: nodeID}
}

func effectName(k volume.EffectKind) string {
	return []string{"Finished", "FindOwners", "ReadSecret", "AddFinalizers", "Publish", "MarkAttached", "Unpublish", "Disown", "RemoveFinalizer", "MarkDetached", "LookAgain"}[k]
}

func TestStatusThatWasWrittenWithoutAnAnswerIsSeen(t *testing.T) {
	c, va := newOpened(), objectOf("va")
	c.run(attachAt("id-1"), map[volume.EffectKind]volume.Outcome{volume.MarkAttached: {Result: volume.NotDone}})
	va.Status.Attached = true
	if c.Open(va); c.known.Belief != volume.Recorded || c.known.Context != nil {
		t.Errorf("%+v; want it recorded, and the publish context left to the status", c.known)
	}
}
