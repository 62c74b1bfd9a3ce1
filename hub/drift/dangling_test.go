package drift

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestVolumeIsKeptForTheFirstReasonThatHolds(t *testing.T) {
	named := func(name string) *attach.Volume {
		return attach.VolumeOf(volume(func(pv *corev1.PersistentVolume) { pv.Name = name }))
	}
	f := Facts{Unasked: true, Partial: true, Claimant: "va", Changed: true, Missing: "other", Action: registry.UnexpectedReport, User: "n", Unsure: "m is not known: no"}
	for _, tc := range []struct {
		without  func() // takes the reason of the line above away
		want     string
		dangling bool
	}{
		{func() {}, "attachRequired is false", false},
		{func() { f.Unasked = false }, "no CSINode of this cluster has the node ID", false},
		{func() { f.Nodes = []string{"n"} }, "no PersistentVolume of the driver in this cluster has the volume handle", false},
		{func() { f.Volumes = []*attach.Volume{named("a"), named("b")} }, "two PersistentVolumes have the volume handle: a and b", false},
		{func() { f.Volumes = f.Volumes[:1] }, "the cache may lack VolumeAttachments that a former leader has worked for", false},
		{func() { f.Partial = false }, "VolumeAttachment va may ask for it there", false},
		{func() { f.Claimant = "" }, "other work on the volume has begun there", false},
		{func() { f.Changed = false }, "the driver does not report the volume on the node of VolumeAttachment other, where it is attached", false},
		{func() { f.Missing = "" }, "drift.unexpected is report", true},
		{func() { f.Action = registry.UnexpectedDetach }, "it is in use on node n", true},
		{func() { f.User = "" }, "whether it is in use on node m is not known: no", true},
		{func() { f.Unsure = "" }, "", true},
	} {
		tc.without()
		if got, dangling := WhyKept(f); got != tc.want || dangling != tc.dangling {
			t.Errorf("kept because %q, dangling: %v, want %q and %v", got, dangling, tc.want, tc.dangling)
		}
	}
	d := Dangling{attach.Target{VolumeHandle: "listed", NodeID: "id"}, f}
	want := attach.Record{Target: attach.Target{VolumeHandle: "vol-1", NodeID: "id"}, SecretKnown: true, Nodes: attach.SingleNode}
	if diff := cmp.Diff(want, d.Record()); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// Two volumes have a PersistentVolume each, and three node IDs a node each.
func TestVolumeAttachmentAsksForWhatItMayHaveOrGetAttached(t *testing.T) {
	node := func(name, id string) *storagev1.CSINode {
		n := csiNode(id)
		n.Name = name
		return n
	}
	second := volume(func(pv *corev1.PersistentVolume) { pv.Name, pv.Spec.CSI.VolumeHandle = "pv-2", "vol-2" })
	noted := annotated(attach.AnnotationNodeID, "old")
	named := func(name string) func(*storagev1.VolumeAttachment) {
		return func(va *storagev1.VolumeAttachment) { va.Spec.Source.PersistentVolumeName = &name }
	}
	elsewhere := func(va *storagev1.VolumeAttachment) { va.Spec.NodeName = "gone" }
	made := func(handle string) func(*storagev1.VolumeAttachment) {
		return func(va *storagev1.VolumeAttachment) {
			va.Name = fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driverName+va.Spec.NodeName)))
		}
	}
	inlined := func(va *storagev1.VolumeAttachment) { inline(&volume().Spec)(va) }
	for _, tc := range []struct {
		name string
		va   *storagev1.VolumeAttachment
		want []string // "volume node ID" of those of all two volumes at all three node IDs
	}{
		{"not attached yet", attachment(), []string{"vol-1 id-1"}},
		{"not attached yet, inline", attachment(inlined), []string{"vol-1 id-1"}},
		{"attached where the node was registered before", attachment(attached, guarded, noted), []string{"vol-1 id-1", "vol-1 old", "vol-2 id-1", "vol-2 old"}},
		{"the same, and its name is made of the handle", attachment(attached, guarded, noted, made("vol-1")), []string{"vol-1 id-1", "vol-1 old"}},
		{"its PersistentVolume was recreated with another handle", attachment(attached, guarded, annotated(attach.AnnotationVolumeHandle, "vol-2")), []string{"vol-1 id-1", "vol-2 id-1"}},
		{"the same, and it notes no handle", attachment(attached, guarded, made("vol-2")), []string{"vol-1 id-1", "vol-2 id-1"}},
		{"being deleted", attachment(attached, guarded, deleted, annotated(attach.AnnotationVolumeHandle, "vol-1")), []string{"vol-1 id-1"}},
		{"deleted, and held by another's finalizer", attachment(deleted, finalizers("other/f")), nil},
		{"waiting for its PersistentVolume", attachment(named("gone")), nil},
		{"attached, of an unknown volume", attachment(attached, guarded, named("gone")), []string{"vol-1 id-1", "vol-2 id-1"}},
		{"on an unknown node", attachment(guarded, elsewhere, made("vol-1")), []string{"vol-1 id-1", "vol-1 id-2", "vol-1 old"}},
		{"of an unknown volume on an unknown node", attachment(guarded, elsewhere, named("gone")),
			[]string{"vol-1 id-1", "vol-1 id-2", "vol-1 old", "vol-2 id-1", "vol-2 id-2", "vol-2 old"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, lister, tc.va, volume(), second, node("node-1", "id-1"), node("node-2", "id-2"), node("node-3", "old"))
			l := listing{driver: lister, after: w.watch.View.AttachmentsOfDriver(driverName), changed: func(attach.Target) bool { return false }}
			l.published = csiclient.Published{"vol-1": on("id-1", "id-2", "old"), "vol-2": on("old", "id-2", "id-1")}
			w.watch.findClaimants(&l)
			var got []string
			for _, handle := range []string{"vol-1", "vol-2"} {
				for _, nodeID := range []string{"id-1", "id-2", "old"} {
					at := attach.Target{VolumeHandle: handle, NodeID: nodeID}
					if w.watch.facts(t.Context(), l, []attach.Target{at})[0].Claimant != "" {
						got = append(got, handle+" "+nodeID)
					} else if !slices.Contains(w.watch.unclaimed(l), at) {
						t.Errorf("%s is not looked at", at)
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
		})
	}
}

const gceZone = "projects/p/zones/us-central1-a"

// migrated has an in-tree PD: its handle lacks the project, which the driver's list has.
func migrated(t *testing.T, objects ...any) *world {
	t.Helper()
	driver := lister
	driver.Name = gcePD
	pv := inTree(map[string]string{corev1.LabelTopologyZone: "us-central1-a"})
	pv.Annotations = map[string]string{attach.AnnotationMigratedTo: gcePD}
	node := gceNodeWith(gceNode)
	node.Name = "node-2"
	w := newWorld(t, driver, append(objects, pv, node)...)
	w.listed = csiclient.Published{gceZone + "/disks/disk": on(gceNode)}
	return w
}

func TestDanglingVolumeThatIsMigratedIsFoundByTheHandleOfItsPersistentVolume(t *testing.T) {
	w := migrated(t)
	w.watch.Check(t.Context())
	w.watch.Check(t.Context())
	if want := []string{"detach"}; !slices.Equal(w.dangling, want) {
		t.Fatalf("dangling: %q", w.dangling)
	}
	target := attach.Target{VolumeHandle: "projects/UNSPECIFIED/zones/us-central1-a/disks/disk", NodeID: gceNode}
	if why := w.watch.WhyKeptNow(t.Context(), target); why != "" {
		t.Errorf("kept at %v because %s", target, why)
	}
}

// It notes neither a node ID nor a handle, its node has no CSINode, and its name is made of the handle of its PersistentVolume.
func TestVolumeAttachmentOfAMigratedVolumeOnAnUnknownNodeAsksForWhatTheDriverLists(t *testing.T) {
	const handle = "projects/UNSPECIFIED/zones/us-central1-a/disks/disk"
	for name, edit := range map[string]func(*storagev1.VolumeAttachment){
		"known volume":   func(*storagev1.VolumeAttachment) {},
		"unknown volume": func(va *storagev1.VolumeAttachment) { va.Spec.Source.PersistentVolumeName = ptr("gone") },
		"noted":          annotated(attach.AnnotationNodeID, gceNode),
	} {
		t.Run(name, func(t *testing.T) {
			va := attachment(attached, guarded, edit)
			va.Spec.Attacher, va.Finalizers = gcePD, []string{attach.Finalizer(gcePD)}
			va.Name = fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+gcePD+va.Spec.NodeName)))
			w := migrated(t, va)
			for range 3 {
				w.watch.Check(t.Context())
			}
			if len(w.dangling) > 0 {
				t.Errorf("not asked for: %q", w.dangling)
			}
		})
	}
}

func TestDanglingVolumeIsActedOnAfterTwoListingsInARow(t *testing.T) {
	there := csiclient.Published{"vol-1": on("id-1")}
	for name, tc := range map[string]struct {
		action   registry.UnexpectedAction
		listings []csiclient.Published
		want     []string
		confirm  bool // another listing soon
	}{
		"once":                       {registry.UnexpectedDetach, []csiclient.Published{there}, nil, true},
		"twice":                      {registry.UnexpectedDetach, []csiclient.Published{there, there}, []string{"detach"}, false},
		"a listing fails in between": {registry.UnexpectedDetach, []csiclient.Published{there, nil, there}, []string{"detach"}, false},
		"not there in between":       {registry.UnexpectedDetach, []csiclient.Published{there, {}, there}, nil, true},
		"after the detach anew":      {registry.UnexpectedDetach, []csiclient.Published{there, there, there}, []string{"detach"}, true},
		"a listing fails":            {registry.UnexpectedDetach, []csiclient.Published{there, nil}, nil, true},
		"reported once":              {registry.UnexpectedReport, []csiclient.Published{there, there, there, there}, []string{"kept because drift.unexpected is report"}, false},
		"reported, gone and back": {registry.UnexpectedReport, []csiclient.Published{there, there, {}, there, there},
			[]string{"kept because drift.unexpected is report", "kept because drift.unexpected is report"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, volume(), csiNode("id-1"))
			w.watch.Settings = func() registry.Drift { return registry.Drift{Unexpected: tc.action} }
			for _, w.listed = range tc.listings {
				w.watch.Check(t.Context())
			}
			if !slices.Equal(w.dangling, tc.want) || w.watch.confirm != tc.confirm {
				t.Errorf("dangling: %q, want %q; to be confirmed: %v", w.dangling, tc.want, w.watch.confirm)
			}
		})
	}
}

func TestVolumeIsKeptWhereItWasAskedForOrWorkedOnDuringTheListing(t *testing.T) {
	asking := attachment(attached, guarded, annotated(attach.AnnotationNodeID, "id-1"), annotated(attach.AnnotationVolumeHandle, "vol-1"))
	for name, tc := range map[string]struct {
		before *storagev1.VolumeAttachment
		during func(w *world)
		kept   bool
	}{
		"nothing happens":          {nil, func(*world) {}, false},
		"a VolumeAttachment goes":  {asking, func(w *world) { w.remove(asking) }, true},
		"a VolumeAttachment comes": {nil, func(w *world) { w.put(asking) }, true},
		"work begins":              {nil, func(w *world) { w.changed = map[attach.Target]bool{{VolumeHandle: "vol-1", NodeID: "id-1"}: true} }, true},
		"work begins on another":   {nil, func(w *world) { w.changed = map[attach.Target]bool{{VolumeHandle: "vol-2", NodeID: "id-1"}: true} }, false},
		"a VolumeAttachment with another volume goes": {attachment(annotated(attach.AnnotationVolumeHandle, "vol-2"), func(va *storagev1.VolumeAttachment) {
			va.Spec.Source.PersistentVolumeName = ptr("pv-2")
		}), func(w *world) { w.remove(asking) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, volume(), csiNode("id-1"))
			w.listed = csiclient.Published{"vol-1": on("id-1")}
			w.watch.Check(t.Context())
			if tc.before != nil {
				w.put(tc.before)
			}
			w.during = func() { tc.during(w) }
			w.watch.Check(t.Context())
			if kept := len(w.dangling) == 0; kept != tc.kept {
				t.Errorf("kept: %v, want %v", kept, tc.kept)
			}
		})
	}
}

func TestDanglingVolumeIsKeptWhileItsNodeUsesIt(t *testing.T) {
	w := newWorld(t, lister, volume(), csiNode("id-1"))
	w.listed = csiclient.Published{"vol-1": on("id-1")}
	using, reads := &corev1.Node{Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/" + driverName + "^vol-1"}}}, 0
	w.node = using
	w.watch.Nodes.Read = func(context.Context, string) (*corev1.Node, error) {
		reads++
		if w.node == nil {
			return nil, errors.New("no answer")
		}
		return w.node, nil
	}
	target := attach.Target{VolumeHandle: "vol-1", NodeID: "id-1"}
	for _, tc := range []struct {
		node *corev1.Node
		kept string
	}{{using, "it is in use on node node-1"}, {nil, "whether it is in use on node node-1 is not known: no answer"}} {
		w.node = tc.node
		w.watch.Check(t.Context())
		w.watch.Check(t.Context())
		if r := w.watch.Reported(); len(r) != 1 || r[0].Kept != tc.kept || w.watch.WhyKeptNow(t.Context(), target) != tc.kept {
			t.Errorf("reported: %+v, want it kept because %s", r, tc.kept)
		}
	}
	if want := []string{"kept because it is in use on node node-1"}; !slices.Equal(w.dangling, want) || reads != 5 {
		t.Errorf("dangling: %q, want %q; %d reads of the Node, want 5", w.dangling, want, reads)
	}
	w.node = &corev1.Node{}
	w.watch.Check(t.Context())
	if len(w.watch.Reported()) > 0 || len(w.dangling) != 2 || w.dangling[1] != "detach" {
		t.Errorf("reported %+v, dangling %q when it is not in use any more", w.watch.Reported(), w.dangling)
	}
}

// Others would take the Node for gone, and detach what its kubelet uses.
func TestReadOfANodeThatPanicsDoesNotSayThatTheNodeIsGone(t *testing.T) {
	n := &Nodes{Read: func(context.Context, string) (*corev1.Node, error) { panic("client") }}
	round := n.Round()
	for i := range 2 {
		func() {
			defer func() {
				if panicked := recover() != nil; panicked != (i == 0) {
					t.Errorf("call %d panicked: %v", i, panicked)
				}
			}()
			if node, err := n.Get(t.Context(), "n", round); err == nil {
				t.Errorf("call %d: node %v without an error", i, node)
			}
		}()
	}
}

// While one volume's node was read, no other was told of the read before: each read it itself.
func TestLastReadOfANodeCountsWhileItIsReadAgain(t *testing.T) {
	var n *Nodes
	began, reads := time.Now().Add(-time.Second), 0
	n = &Nodes{Read: func(context.Context, string) (*corev1.Node, error) {
		if reads++; reads == 2 && n.Last("n", began) == nil {
			t.Error("nothing is known of the node while it is read again")
		}
		return &corev1.Node{}, nil
	}}
	for range 2 {
		if _, err := n.Get(t.Context(), "n", n.Round()); err != nil {
			t.Fatal(err)
		}
	}
	if n.Last("n", time.Now()) != nil || n.Last("m", began) != nil || reads != 2 {
		t.Errorf("known of a later read, or of another node; %d reads", reads)
	}
}
