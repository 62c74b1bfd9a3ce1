package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func TestTimelineFollowsAVolumeFromItsPodToItsNodeAndAway(t *testing.T) {
	v := volume{name: "pv-1", driver: "d.example.com", node: "node-1"}
	line := &timeline{}
	line.beginAttach([]volume{v})
	line.bound(v)
	va := v.attachment()
	va.Name = "csi-1234" // kube-controller-manager names it
	line.observeAttachment(nil, va)
	attached := va.DeepCopy()
	attached.Status.Attached = true
	line.observeAttachment(va, attached)

	node := &corev1.Node{Status: corev1.NodeStatus{VolumesAttached: []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d.example.com^other"}}}}
	line.observeNode(nil, node)
	if done(line.there) {
		t.Error("another volume counts")
	}
	node.Status.VolumesAttached[0].Name = "kubernetes.io/csi/d.example.com^pv-1"
	line.observeNode(nil, node)
	line.observeNode(nil, node) // it stays there
	if !done(line.there) {
		t.Error("the volume that the node reports does not count")
	}
	at := line.at[v.name]
	for _, one := range []moment{podBound, attachWanted, volumeReady, nodeReported} {
		if at[one].IsZero() {
			t.Errorf("moment %d is missing", one)
		}
	}
	if _, err := line.attached(nil); err == nil {
		t.Error("no error for a volume that was attached without a call")
	}

	line.beginDetach([]volume{v})
	line.deleted(v)
	line.observeNode(nil, node)
	if done(line.there) {
		t.Error("a node that still reports the volume counts as detached")
	}
	var none *storagev1.VolumeAttachment
	line.observeAttachment(attached, none)
	if !done(line.there) || len(line.detached()) != 1 {
		t.Error("the VolumeAttachment that is gone does not count")
	}
}

func TestLegsAddUpWhenAWatchIsLate(t *testing.T) {
	began := time.Now()
	after := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	// The watch shows the VolumeAttachment after the driver was called.
	j := journeyOf([attachMoments]time.Time{after(0), after(40), after(30), after(100), after(600)})
	want := journey{40 * time.Millisecond, 0, 60 * time.Millisecond, 500 * time.Millisecond}
	if j != want || j.whole() != 600*time.Millisecond {
		t.Errorf("got %v with the sum %v, want %v", j, j.whole(), want)
	}
	if got, want := (journeys{j}).managerShare(), 0.9; got != want {
		t.Errorf("share of kube-controller-manager: got %v, want %v", got, want)
	}
	var sum float64
	for _, p := range (journeys{j, journey{}}).stack("chart", "hub").Parts {
		sum += p.Value
	}
	if sum != 0.3 {
		t.Errorf("the bar of two volumes is %v s long, want their mean of 0.3 s", sum)
	}
}

func done(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
