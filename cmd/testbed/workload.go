package main

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// workload is the Pods of a scene, each with a volume of its own.
type workload struct {
	nodes   []string
	volumes []volume
}

// volume is one PersistentVolume, its claim and the Pod that uses it: all three
// have its name, and so has the volume handle.
type volume struct {
	name   string
	driver string
	node   string
}

// newWorkload spreads the Pods over the drivers, and those of each driver over
// the nodes.
func newWorkload(pods, nodes int) workload {
	var w workload
	for i := range nodes {
		w.nodes = append(w.nodes, fmt.Sprintf("node-%d", i+1))
	}
	for i := range pods {
		b, nth := behaviours[i%len(behaviours)], i/len(behaviours)
		w.volumes = append(w.volumes, volume{
			name:   fmt.Sprintf("%s-%d", b.short, nth+1),
			driver: b.driver(),
			node:   w.nodes[nth%nodes],
		})
	}
	return w
}

// of returns the names of a driver's volumes.
func (w workload) of(driver string) []string {
	var names []string
	for _, v := range w.volumes {
		if v.driver == driver {
			names = append(names, v.name)
		}
	}
	return names
}

func (w workload) pods() []testbed.Object {
	var objects []testbed.Object
	for _, v := range w.volumes {
		objects = append(objects, testbed.Pod{Name: v.name, Node: v.node, Claims: []string{v.name}})
	}
	return objects
}

// states count the VolumeAttachments of one driver.
type states struct{ attached, failing int }

// statesOf returns the states by driver. One that is being deleted is not counted as attached.
func statesOf(all []*storagev1.VolumeAttachment) map[string]states {
	drivers := map[string]states{}
	for _, va := range all {
		s := drivers[va.Spec.Attacher]
		if va.Status.Attached && va.DeletionTimestamp == nil {
			s.attached++
		}
		if va.Status.AttachError != nil || va.Status.DetachError != nil {
			s.failing++
		}
		drivers[va.Spec.Attacher] = s
	}
	return drivers
}

// attachedBut returns a condition: every volume is attached, but for those of
// one driver, of which none is.
func (w workload) attachedBut(driver string) func([]*storagev1.VolumeAttachment) bool {
	return func(all []*storagev1.VolumeAttachment) bool {
		now := statesOf(all)
		for _, b := range behaviours {
			want := len(w.of(b.driver()))
			if b.driver() == driver {
				want = 0
			}
			if now[b.driver()].attached != want {
				return false
			}
		}
		return true
	}
}
