package explain_test

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// storageCures are those of what the storage system knows and the objects do not say.
var storageCures = []cure{
	{
		name:    "full node",
		prepare: (*cureScene).addNode,
		breaks:  (*cureScene).fillNode,
		ask:     (*cureScene).playWaitingPod,
		verdict: diagnosis.NodeFull, object: "Node {name}-node", words: []string{"can have no more volumes of driver {name}", "number 1 in line"},
		cured: func(s *cureScene) { s.waitAttached(s.name + "-on-" + s.otherNode()) },
	},
	{
		name: "dangling volume",
		prepare: func(s *cureScene) {
			s.entry = []string{"drift:", "  interval: 1s", "retry:", "  initial: 200ms", "  max: 1s"}
			s.addNode()
		},
		breaks:  func(s *cureScene) { s.attachByHand(s.name) },
		ask:     (*cureScene).attachAfterUnused,
		verdict: diagnosis.Dangling, object: "driver {name}", words: []string{"is listed at node ID id-of-{name}-node2 (node {name}-node2) without a VolumeAttachment"},
	},
}

// otherNode is a second node of the scene, which addNode makes.
func (s *cureScene) otherNode() string { return s.node + "2" }

func (s *cureScene) addNode() {
	s.t.Helper()
	s.must(s.world.Cluster.Create(s.ctx, testbed.Node{Name: s.otherNode()}, s.world.CSINode(s.otherNode())))
}

// fillNode has a volume attached to the node, and no place there for another one.
func (s *cureScene) fillNode() {
	s.t.Helper()
	s.must(s.driver.Backend.Set(fakecsi.Knobs{MaxVolumesPerNode: ptr.To(1)}))
	first := s.name + "-first"
	s.must(s.world.Cluster.Create(s.ctx, testbed.PersistentVolume{Name: first, Driver: s.driver.Name},
		testbed.VolumeAttachment{Name: first, Driver: s.driver.Name, Node: s.node, PersistentVolume: first}))
	s.waitAttached(first)
}

// playWaitingPod plays a Pod that uses the volume: its controller makes it again when it is deleted, the scheduler places it
// on the other node if the node is cordoned, the attach-detach controller asks for its volume, and kubelet ends it.
func (s *cureScene) playWaitingPod() (question string) {
	s.t.Helper()
	s.pv.Claim = s.name
	s.must(s.world.Cluster.Create(s.ctx, s.pv, testbed.PersistentVolumeClaim{Name: s.name, PersistentVolume: s.pv.Name}))
	_, err := s.kube.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Patch(s.ctx, s.name, types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`), metav1.PatchOptions{}, "status")
	s.must(err)
	pods := s.kube.CoreV1().Pods(metav1.NamespaceDefault)
	attachmentOn := func(node string) testbed.VolumeAttachment {
		return testbed.VolumeAttachment{Name: s.name + "-on-" + node, Driver: s.driver.Name, Node: node, PersistentVolume: s.pv.Name}
	}
	s.play(func(ctx context.Context) { // what the API server refuses is tried again in the next step
		pod, err := pods.Get(ctx, s.name, metav1.GetOptions{})
		switch {
		case err == nil && pod.DeletionTimestamp != nil:
			_ = pods.Delete(ctx, s.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		case err == nil:
			if err := s.world.Cluster.Create(ctx, attachmentOn(pod.Spec.NodeName)); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
				s.t.Error(err)
			}
		case apierrors.IsNotFound(err):
			node, err := s.kube.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
			if err != nil || s.world.Cluster.Delete(ctx, attachmentOn(s.node)) != nil {
				return
			}
			name := s.node
			if node.Spec.Unschedulable {
				name = s.otherNode()
			}
			_ = s.world.Cluster.Create(ctx, testbed.Pod{Name: s.name, Node: name, Claims: []string{s.name}})
		}
	})
	return "pod/default/" + s.name
}

// attachByHand attaches a volume to the other node behind the cluster's back.
func (s *cureScene) attachByHand(volume string) {
	s.t.Helper()
	s.must(s.driver.Backend.Set(fakecsi.Knobs{GainAttachments: []fakecsi.VolumeNode{{Volume: volume, Node: testbed.NodeID(s.otherNode())}}}))
}

// attachAfterUnused cures the same of a volume that nobody asks for before it asks for that of the scene.
func (s *cureScene) attachAfterUnused() string {
	s.t.Helper()
	unused := s.name + "-unused"
	s.must(s.world.Cluster.Create(s.ctx, testbed.PersistentVolume{Name: unused, Driver: s.driver.Name}))
	s.attachByHand(unused)
	var notes []diagnosis.Diagnosis
	s.until("explain notes that the volume dangles", func() bool {
		notes = s.dangling("pv/" + unused)
		return len(notes) == 1
	}, func() string { return s.explain("pv/"+unused).Text(statustable.Style{}, true) })
	if want := "volume " + unused + " is listed at node ID " + testbed.NodeID(s.otherNode()); !strings.Contains(notes[0].Fact, want) {
		s.t.Errorf("the fact %q lacks %q", notes[0].Fact, want)
	}
	s.shell(strings.Join(notes[0].Commands, "\n"))
	s.until("the volume is not reported any more", func() bool { return len(s.dangling("pv/"+unused)) == 0 }, func() string { return s.explain("pv/"+unused).Text(statustable.Style{}, true) })
	if s.driver.Backend.Books().IsAttached(unused, testbed.NodeID(s.otherNode())) {
		s.t.Errorf("%s is attached", unused)
	}
	return s.attach()
}

// dangling returns the notes of an answer that are of dangling volumes.
func (s *cureScene) dangling(question string) []diagnosis.Diagnosis {
	s.t.Helper()
	var notes []diagnosis.Diagnosis
	for _, v := range s.explain(question).Volumes {
		notes = append(notes, v.Notes...)
	}
	return slices.DeleteFunc(notes, func(n diagnosis.Diagnosis) bool { return n.Verdict != diagnosis.Dangling })
}
