package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// workload is the Pods of a scene, each with a volume of its own.
type workload struct {
	drivers []string
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
func newWorkload(all []behaviour, pods, nodes int) workload {
	var w workload
	for _, r := range all {
		w.drivers = append(w.drivers, r.driver())
	}
	for i := range nodes {
		w.nodes = append(w.nodes, fmt.Sprintf("node-%d", i+1))
	}
	for i := range pods {
		r, nth := all[i%len(all)], i/len(all)
		w.volumes = append(w.volumes, volume{
			name:   fmt.Sprintf("%s-%d", r.short, nth+1),
			driver: r.driver(),
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

// counts says how many volumes each driver has.
func (w workload) counts() map[string]int {
	n := map[string]int{}
	for _, v := range w.volumes {
		n[v.driver]++
	}
	return n
}

// storage are the PersistentVolumes.
func (w workload) storage() []testbed.Object {
	var objects []testbed.Object
	for _, v := range w.volumes {
		objects = append(objects, testbed.PersistentVolume{Name: v.name, Driver: v.driver, Claim: v.name})
	}
	return objects
}

// claims are the claims of the PersistentVolumes.
func (w workload) claims() []testbed.Object {
	var objects []testbed.Object
	for _, v := range w.volumes {
		objects = append(objects, testbed.PersistentVolumeClaim{Name: v.name, PersistentVolume: v.name})
	}
	return objects
}

func (w workload) pods() []testbed.Object {
	var objects []testbed.Object
	for _, v := range w.volumes {
		objects = append(objects, testbed.Pod{Name: v.name, Node: v.node, Claims: []string{v.name}})
	}
	return objects
}

// onNodes holds when the status of every node names every volume that its Pods
// use: that is what a kubelet waits for before it mounts.
func (w workload) onNodes(nodes []*corev1.Node) bool {
	attached := map[string][]corev1.AttachedVolume{}
	for _, n := range nodes {
		attached[n.Name] = n.Status.VolumesAttached
	}
	return !slices.ContainsFunc(w.volumes, func(v volume) bool {
		return !slices.ContainsFunc(attached[v.node], func(a corev1.AttachedVolume) bool { return a.Name == v.uniqueName() })
	})
}

// uniqueName is what Kubernetes calls the volume on a node.
func (v volume) uniqueName() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + v.driver + "^" + v.name)
}

// attachedBut returns a condition: every volume is attached, but for those of
// one driver, of which none is.
func (w workload) attachedBut(driver string) func([]*storagev1.VolumeAttachment) bool {
	want := len(w.volumes) - len(w.of(driver))
	return func(all []*storagev1.VolumeAttachment) bool {
		attached := 0
		for _, va := range all {
			if !va.Status.Attached || va.DeletionTimestamp != nil {
				continue
			}
			if va.Spec.Attacher == driver {
				return false
			}
			attached++
		}
		return attached == want
	}
}
