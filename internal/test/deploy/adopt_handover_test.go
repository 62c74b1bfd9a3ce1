package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// stepTimeout is when a step of a handover gives up.
const stepTimeout = 5 * time.Minute

// handover moves the drivers of one manifest, to the hub and back.
type handover struct {
	*adopters
	t       *testing.T
	row     adoptRow
	folder  string
	applier applier
	entry   map[string]map[string]any // as adopt wrote it, by driver
	pod     *runningPod               // with csi-attacher and the driver
	before  map[string]calls          // of a driver until the last step
	level   int                       // of Pod security, that the Pod needs as the vendor ships it
}

// calls are how often a driver was called.
type calls struct{ publishes, unpublishes int }

// begin makes the namespaces and the objects of the manifest, and the nodes of the volumes.
func (a *adopters) begin(t *testing.T, row adoptRow, folder string) *handover {
	t.Helper()
	s := &handover{adopters: a, t: t, row: row, folder: folder, applier: a.applier, entry: map[string]map[string]any{}, before: map[string]calls{}}
	s.applier.t = t
	objects := readObjects(t, manifestOf(row.manifest))
	a.makeNamespaces(objects)
	s.applier.apply(objects...)
	node := testbed.CSINode{Node: s.node(), Drivers: map[string]string{}}
	for _, d := range row.drivers {
		node.Drivers[d.driver] = testbed.NodeID(s.node())
	}
	s.must(a.cluster.Create(a.ctx, node))
	t.Cleanup(func() {
		if s.pod != nil {
			if t.Failed() {
				t.Log(s.pod.logs())
			}
			_ = s.pod.stop(context.Background()) // its Leases are free then
		}
		_ = a.cluster.Delete(context.Background(), node)
	})
	return s
}

func (s *handover) node() string { return "node-of-" + s.row.name() }

func (s *handover) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// start starts a Pod of a workload.
func (s *handover) start(workload *unstructured.Unstructured) *runningPod {
	s.t.Helper()
	pod, err := s.applier.createPod(s.kubelet.client, workload)
	s.must(err)
	var drivers []standIn
	for _, d := range s.row.drivers {
		if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == d.container }) {
			drivers = append(drivers, d)
		}
	}
	p, err := s.kubelet.start(s.ctx, pod, drivers)
	if err != nil {
		logs := p.logs()
		p.kill()
		s.t.Fatalf("%v\n%s", err, logs)
	}
	return p
}

// apply applies a folder of the output, and starts the workload's Pod anew as a rollout does.
func (s *handover) apply(step string) {
	s.t.Helper()
	objects := build(s.t, filepath.Join(s.folder, step))
	s.applier.apply(objects...)
	if level := s.levelOf(workloadOf(objects)); s.pod == nil {
		s.level = level
	} else if level > s.level {
		s.t.Errorf("%s: the Pod needs a namespace of level %d, before it was %d (0 is the strictest)", step, level, s.level)
	}
	if s.pod != nil {
		s.must(s.pod.stop(s.ctx))
	}
	s.pod = s.start(workloadOf(objects))
	for _, d := range s.row.drivers {
		s.before[d.driver], _ = s.books(d.driver)
	}
	s.t.Logf("%s: %s", step, strings.Join(s.started(), ", "))
}

// levelOf returns the strictest level of Pod security that admits the Pods of a workload.
func (s *handover) levelOf(workload *unstructured.Unstructured) int {
	s.t.Helper()
	var template corev1.PodTemplateSpec
	content, _, _ := unstructured.NestedFieldNoCopy(workload.Object, "spec", "template")
	s.must(json.Unmarshal(mustJSON(content), &template))
	template.Spec.PriorityClassName = "" // a class of the driver's must exist for a Pod to be admitted
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: template.Spec}
	var err error
	for i, namespace := range s.levels {
		if _, err = s.kubelet.client.CoreV1().Pods(namespace).Create(s.ctx, pod.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return i
		}
	}
	s.t.Fatalf("no level of Pod security admits the Pod: %v", err)
	return -1
}

// workloadOf returns the object that has Pods.
func workloadOf(objects []*unstructured.Unstructured) *unstructured.Unstructured {
	return objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		_, isWorkload, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template")
		return isWorkload
	})]
}

// prepare runs prepare.sh. The driver's Pod with the proxy can start then.
func (s *handover) prepare(args ...string) {
	s.t.Helper()
	s.must(s.runPrepare(args...))
}

func (s *handover) runPrepare(args ...string) error {
	c := exec.CommandContext(s.ctx, "sh", append([]string{filepath.Join(s.folder, "prepare.sh")}, args...)...)
	c.Env = append(os.Environ(), s.kubectl...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("prepare.sh: %w\n%s", err, out)
	}
	return nil
}

// started returns the names of what runs in the Pod.
func (s *handover) started() []string {
	var names []string
	for name := range s.pod.running {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// attachers counts the containers of csi-attacher that run in the Pod.
func (s *handover) attachers() (n int) {
	for _, c := range s.pod.pod.Spec.Containers {
		if s.pod.running[c.Name] != nil && strings.Contains(imageName(c.Image), "attacher") {
			n++
		}
	}
	return n
}

// serve gives the hub a driver in a mode, with its Service's name replaced by the address.
func (s *handover) serve(driver, mode string) {
	s.t.Helper()
	if s.entry[driver] == nil {
		var file struct {
			Drivers []map[string]any `json:"drivers"`
		}
		s.must(yaml.Unmarshal(readFile(s.t, filepath.Join(s.folder, "hub", driver+".yaml")), &file))
		s.entry[driver] = file.Drivers[0]
	}
	entry := map[string]any{}
	for key, value := range s.entry[driver] {
		entry[key] = value
	}
	endpoint, _ := entry["endpoint"].(string)
	address, err := serviceAddress(s.ctx, s.kubelet.client, endpoint, s.pod)
	s.must(err)
	for _, v := range s.hub.pod.Spec.Volumes { // the kubelet notices within a minute
		if v.Name == "tls" {
			s.mu.Lock()
			err := s.hub.makeVolume(s.ctx, v)
			s.mu.Unlock()
			s.must(err)
		}
	}
	entry["endpoint"], entry["mode"] = "tcp://"+address, mode
	s.setEntry(driver, entry)
}

// attach makes a volume of each driver, and blocks until all are attached.
func (s *handover) attach(volume string) {
	s.t.Helper()
	s.request(volume)
	s.attached(volume)
}

// request makes a volume of each driver that is to be attached.
func (s *handover) request(volume string) {
	s.t.Helper()
	for _, d := range s.row.drivers {
		name := d.driver + "-" + volume
		pv := testbed.PersistentVolume{Name: name, Driver: d.driver}
		va := testbed.VolumeAttachment{Name: name, Driver: d.driver, Node: s.node(), PersistentVolume: name}
		s.must(s.cluster.Create(s.ctx, pv))
		s.must(s.cluster.Create(s.ctx, va))
		s.t.Cleanup(func() { // also if nobody is left to take the finalizers away
			ctx, none := context.Background(), []byte(`{"metadata":{"finalizers":null}}`)
			_ = s.cluster.Delete(ctx, va)
			_ = s.cluster.Delete(ctx, pv)
			_, _ = s.kubelet.client.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, none, metav1.PatchOptions{})
			_, _ = s.kubelet.client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, none, metav1.PatchOptions{})
		})
	}
}

// attached blocks until the volume of each driver is attached.
func (s *handover) attached(volume string) {
	s.t.Helper()
	s.wait(volume, "attached", func(va *storagev1.VolumeAttachment, exists bool) bool { return exists && va.Status.Attached })
}

// detach deletes the VolumeAttachments of a volume of each driver, and blocks until they are gone.
func (s *handover) detach(volume string) {
	s.t.Helper()
	for _, d := range s.row.drivers {
		s.must(s.cluster.Delete(s.ctx, testbed.VolumeAttachment{Name: d.driver + "-" + volume}))
	}
	s.wait(volume, "gone", func(_ *storagev1.VolumeAttachment, exists bool) bool { return !exists })
}

func (s *handover) wait(volume, what string, holds func(*storagev1.VolumeAttachment, bool) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, stepTimeout)
	defer cancel()
	for _, d := range s.row.drivers {
		s.must(s.watcher.WaitForOne(ctx, what, d.driver+"-"+volume, holds))
	}
}

// called checks how often each driver was called in this step, and what is attached.
func (s *handover) called(publishes, unpublishes int, attached ...string) {
	s.t.Helper()
	for _, d := range s.row.drivers {
		all, b := s.books(d.driver)
		var volumes []string
		for volume := range b.Attached {
			volumes = append(volumes, strings.TrimPrefix(volume, d.driver+"-"))
		}
		slices.Sort(volumes)
		before := s.before[d.driver]
		published, unpublished := all.publishes-before.publishes, all.unpublishes-before.unpublishes
		if s.kubelet.attacher != s.kubelet.hub { // csi-attacher itself calls again after its own writes
			published, unpublished = min(published, publishes), min(unpublished, unpublishes)
		}
		got := []any{published, unpublished, b.ViolationCount, volumes}
		want := []any{publishes, unpublishes, 0, attached}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			s.t.Fatalf("%s: publishes, unpublishes, violations and attached volumes are %v, want %v", d.driver, got, want)
		}
	}
}

// books returns how often a driver was called, and all of its books.
func (s *handover) books(driver string) (calls, fakecsi.Books) {
	s.t.Helper()
	backend, err := s.kubelet.storage(driver)
	s.must(err)
	b := backend.Books()
	return calls{b.Methods[fakecsi.ControllerPublishVolume].Begun, b.Methods[fakecsi.ControllerUnpublishVolume].Begun}, b
}

// passed reports whether the hub knows that a driver can be handed over.
func (s *handover) passed(d status.Driver) bool {
	for _, item := range d.Checklist {
		if !item.OK && (item.Name != "lease" || !s.row.withoutLease) {
			return false
		}
	}
	return d.Up && len(d.Checklist) > 0
}
