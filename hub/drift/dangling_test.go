package drift

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestVolumeIsKeptForTheFirstReasonThatHolds(t *testing.T) {
	at := attach.Target{VolumeHandle: "vol-1", NodeID: "id-1"}
	twin := newVolume(func(pv *corev1.PersistentVolume) { pv.Name = "twin" })
	asking := attachment(annotated(attach.AnnotationVolumeHandle, "vol-1"), annotated(attach.AnnotationNodeID, "id-1"))
	lost := attachment(attached, annotated(attach.AnnotationVolumeHandle, "vol-1"), annotated(attach.AnnotationNodeID, "id-2"),
		func(va *storagev1.VolumeAttachment) { va.Name, va.Spec.NodeName = "lost", "node-2" })
	other := csiNode("id-2")
	other.Name = "node-2"
	w := newWorld(t, lister, asking, lost, other)
	w.driver.NoAttach, w.drift.Unexpected = true, registry.UnexpectedReport
	knowsAll, answer := false, errors.New("no")
	w.watch.KnowsAll = func(context.Context) (bool, error) { return knowsAll, nil }
	w.watch.Nodes.Read = func(context.Context, string) (*corev1.Node, error) { return w.node, answer }
	for _, tc := range []struct {
		without  func() // takes the reason of the line above away
		want     string
		dangling bool
	}{
		{func() {}, "attachRequired is false", false},
		{func() { w.driver.NoAttach = false }, "no CSINode of this cluster has the node ID", false},
		{func() { w.put(csiNode("id-1")) }, "no PersistentVolume of the driver in this cluster has the volume handle", false},
		{func() { w.put(newVolume(), twin) }, "two PersistentVolumes have the volume handle: ", false},
		{func() { w.remove(attach.VolumeOf(twin)) }, "the cache may lack VolumeAttachments that a former leader has worked for", false},
		{func() { knowsAll = true }, "VolumeAttachment va-1 may need it there", false},
		{func() { w.remove(asking) }, "the driver does not report the volume on the node of VolumeAttachment lost, where it is attached", false},
		{func() { w.remove(lost) }, "drift.unexpected is report", true},
		{func() { w.drift.Unexpected = registry.UnexpectedDetach }, "whether it is in use on node node-1 is not known: no", true},
		{func() { answer, w.node = nil, nil }, "whether it is in use on node node-1 is not known: the Node object is gone", true},
		{func() { w.node = using }, "it is in use on node node-1", true},
		{func() { w.node = &corev1.Node{} }, "", true},
	} {
		tc.without()
		l := listing{driver: w.driver, after: w.watch.Overlay.AttachmentsOfDriver(driverName)}
		l.published = csiclient.Published{"vol-1": on("id-1")}
		w.watch.findAttachments(&l)
		w.watch.findVolumes(t.Context(), &l, at)
		d, got := w.watch.look(&l, at)
		if d != nil {
			got = w.watch.whyKept(t.Context(), w.watch.Nodes.Round(), d)
			want := attach.Record{Target: at, SecretKnown: true, Nodes: attach.SingleNode}
			if diff := cmp.Diff(want, d.record); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		}
		if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" || (d != nil) != tc.dangling {
			t.Errorf("not detaching it there because %q, dangling: %v, want %q and %v", got, d != nil, tc.want, tc.dangling)
		}
	}
}

// using is a Node whose kubelet uses the volume.
var using = &corev1.Node{Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/" + driverName + "^vol-1"}}}

// Two volumes have a PersistentVolume each, and three node IDs a node each.
func TestVolumeAttachmentAsksForWhatItMayHaveOrGetAttached(t *testing.T) {
	node := func(name, id string) *storagev1.CSINode {
		n := csiNode(id)
		n.Name = name
		return n
	}
	second := newVolume(func(pv *corev1.PersistentVolume) { pv.Name, pv.Spec.CSI.VolumeHandle = "pv-2", "vol-2" })
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
	inlined := func(va *storagev1.VolumeAttachment) { inline(&newVolume().Spec)(va) }
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
			w := newWorld(t, lister, tc.va, newVolume(), second, node("node-1", "id-1"), node("node-2", "id-2"), node("node-3", "old"))
			l := listing{driver: lister, after: w.watch.Overlay.AttachmentsOfDriver(driverName)}
			l.published = csiclient.Published{"vol-1": on("id-1", "id-2", "old"), "vol-2": on("old", "id-2", "id-1")}
			w.watch.findAttachments(&l)
			var got []string
			for _, handle := range []string{"vol-1", "vol-2"} {
				for _, nodeID := range []string{"id-1", "id-2", "old"} {
					at := attach.Target{VolumeHandle: handle, NodeID: nodeID}
					w.watch.findVolumes(t.Context(), &l, at)
					if d, _ := w.watch.look(&l, at); d == nil {
						got = append(got, handle+" "+nodeID)
					} else if !slices.Contains(l.dangling(), at) {
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
	w.check()
	w.check()
	if want := []string{"detaching it there"}; !slices.Equal(w.dangling, want) {
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
				w.check()
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
		"twice":                      {registry.UnexpectedDetach, []csiclient.Published{there, there}, []string{"detaching it there"}, false},
		"a listing fails in between": {registry.UnexpectedDetach, []csiclient.Published{there, nil, there}, []string{"detaching it there"}, false},
		"not there in between":       {registry.UnexpectedDetach, []csiclient.Published{there, {}, there}, nil, true},
		"after the detach anew":      {registry.UnexpectedDetach, []csiclient.Published{there, there, there}, []string{"detaching it there"}, true},
		"a listing fails":            {registry.UnexpectedDetach, []csiclient.Published{there, nil}, nil, true},
		"reported once":              {registry.UnexpectedReport, []csiclient.Published{there, there, there, there}, []string{"not detaching it there because drift.unexpected is report"}, false},
		"reported, gone and back": {registry.UnexpectedReport, []csiclient.Published{there, there, {}, there, there},
			[]string{"not detaching it there because drift.unexpected is report", "not detaching it there because drift.unexpected is report"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, newVolume(), csiNode("id-1"))
			w.drift.Unexpected = tc.action
			for _, w.listed = range tc.listings {
				w.check()
			}
			if !slices.Equal(w.dangling, tc.want) || w.watch.confirm != tc.confirm {
				t.Errorf("dangling: %q, want %q; to be confirmed: %v", w.dangling, tc.want, w.watch.confirm)
			}
		})
	}
}

// workAt begins work for a volume on node-1.
func workAt(handle string) func(*world) {
	return func(w *world) {
		w.table.Queue.Add(queue.AttachmentKey("other"), queue.AttachLane, queue.Destination{Target: attach.Target{VolumeHandle: handle, NodeID: "id-1"}})
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
		"work begins":              {nil, workAt("vol-1"), true},
		"work begins on another":   {nil, workAt("vol-2"), false},
		"a VolumeAttachment with another volume goes": {attachment(annotated(attach.AnnotationVolumeHandle, "vol-2"), func(va *storagev1.VolumeAttachment) {
			va.Spec.Source.PersistentVolumeName = ptr("pv-2")
		}), func(w *world) { w.remove(asking) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lister, newVolume(), csiNode("id-1"))
			w.listed = csiclient.Published{"vol-1": on("id-1")}
			w.check()
			if tc.before != nil {
				w.put(tc.before)
			}
			w.during = func() { tc.during(w) }
			w.check()
			if kept := len(w.dangling) == 0; kept != tc.kept {
				t.Errorf("kept: %v, want %v", kept, tc.kept)
			}
		})
	}
}

func TestDanglingVolumeIsKeptWhileItsNodeUsesIt(t *testing.T) {
	w := newWorld(t, lister, newVolume(), csiNode("id-1"))
	w.listed = csiclient.Published{"vol-1": on("id-1")}
	reads := 0
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
		w.check()
		w.check()
		if r := w.watch.Reported(); len(r) != 1 || r[0].LastError != tc.kept || w.watch.WhyKeptNow(t.Context(), target) != tc.kept {
			t.Errorf("reported: %+v, want it kept because %s", r, tc.kept)
		}
	}
	if want := []string{"not detaching it there because it is in use on node node-1"}; !slices.Equal(w.dangling, want) || reads != 5 {
		t.Errorf("dangling: %q, want %q; %d reads of the Node, want 5", w.dangling, want, reads)
	}
	w.node = &corev1.Node{}
	w.check()
	if len(w.watch.Reported()) > 0 || len(w.dangling) != 2 || w.dangling[1] != "detaching it there" {
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

func TestNodesOfATermAreBounded(t *testing.T) {
	n := &Nodes{Read: func(context.Context, string) (*corev1.Node, error) { return &corev1.Node{}, nil }}
	round := n.Round()
	for i := range 2*keptNodes + 1 {
		if _, err := n.Get(t.Context(), fmt.Sprint(i), round); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.read) != 1 || len(n.last) != 1 {
		t.Errorf("%d and %d Nodes are kept, want only the last", len(n.read), len(n.last))
	}
}
