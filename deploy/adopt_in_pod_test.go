package deploy_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const dropIn, sidecarHub = "--mode=drop-in", "--mode=sidecar-hub"

var dropInRows = []adoptRow{
	{manifest: "ebs", flags: []string{dropIn}, drivers: []standIn{{"ebs.csi.aws.com", "ebs-plugin", pluginProxy}}},
	{manifest: "vsphere", flags: []string{dropIn}, drivers: []standIn{{"csi.vsphere.vmware.com", "vsphere-csi-controller", "/csi/csi.sock"}}},
	{manifest: "azuredisk", flags: []string{dropIn}, drivers: []standIn{{"disk.csi.azure.com", "azuredisk", "/csi/csi.sock"}}},
	{manifest: "gce-pd", flags: []string{dropIn}, drivers: []standIn{{"pd.csi.storage.gke.io", "gce-pd-driver", "/csi/csi.sock"}}},
	{manifest: "cinder", flags: []string{dropIn}, drivers: []standIn{{"cinder.csi.openstack.org", "driver", pluginProxy}}},
	{manifest: "democratic-csi", flags: []string{dropIn}, drivers: []standIn{{"org.democratic-csi.nfs", "csi-proxy", "/csi-data/csi.sock"}}},
	{manifest: "ceph-rbd", flags: []string{dropIn, "--driver=rbd.csi.ceph.com"}, drivers: []standIn{{"rbd.csi.ceph.com", "csi-rbdplugin", "/csi/csi-provisioner.sock"}}},
	{manifest: "hostpath", flags: []string{dropIn}, drivers: []standIn{{"hostpath.csi.k8s.io", "hostpath", "/csi/csi.sock"}}, withoutLease: true},
	{manifest: "longhorn", flags: []string{dropIn}, drivers: []standIn{{"driver.longhorn.io", "node-plugin", "/csi/csi.sock"}}, beside: []string{"longhorn-csi-plugin"}, made: "csi-attacher"},
}

var sidecarHubRows = []adoptRow{
	{manifest: "ebs", flags: []string{sidecarHub}, drivers: []standIn{{"ebs.csi.aws.com", "ebs-plugin", pluginProxy}}},
	{manifest: "ceph-rbd", flags: []string{sidecarHub, "--driver=rbd.csi.ceph.com"}, drivers: []standIn{{"rbd.csi.ceph.com", "csi-rbdplugin", "/csi/csi-provisioner.sock"}}},
}

func TestDriversAreMovedToAHubInTheirPodAndBack(t *testing.T) {
	a := newAdopters(t)
	for _, row := range sidecarHubRows {
		t.Run(row.name(), func(t *testing.T) {
			folder, err := a.adopt(row)
			if err != nil {
				t.Fatal(err)
			}
			s := a.begin(t, row, folder)
			s.apply("original")
			s.attach("a")
			s.called(1, 0, "a")
			s.apply("observe")
			s.waitAll("the checklist is passed", s.passed)
			s.attach("b")
			s.called(1, 0, "a", "b")
			s.apply("active")
			if got := s.attachers(); got != 0 {
				t.Fatalf("%d csi-attachers run, want none", got)
			}
			s.attach("c")
			s.detach("a")
			s.detach("b")
			s.called(1, 2, "c")
			s.apply("original")
			s.detach("c")
			s.called(0, 1)
		})
	}
}

// There is no other hub.
func TestDriversAreServedByAHubInPlaceOfCsiAttacherAndAreTakenBack(t *testing.T) {
	a := newAdopters(t)
	var rows sync.WaitGroup
	for _, row := range dropInRows {
		rows.Go(func() {
			t.Run(row.name(), func(t *testing.T) {
				folder, err := a.adopt(row)
				if err != nil {
					t.Fatal(err)
				}
				a.begin(t, row, folder).swap()
			})
		})
	}
	rows.Wait()
}

// swap puts the hub into the place of csi-attacher, and takes it back.
func (s *handover) swap() {
	s.apply("original")
	s.attach("a")
	s.called(1, 0, "a")
	attachers := s.attachers()

	s.apply("active")
	if got := s.attachers(); got != 0 {
		s.t.Fatalf("%d csi-attachers run, want none", got)
	}
	hubs := 0
	for _, c := range s.pod.pod.Spec.Containers {
		if s.pod.running[c.Name] != nil && strings.HasPrefix(imageName(c.Image), "csi-attach-hub") {
			hubs++
		}
	}
	if hubs != attachers {
		s.t.Fatalf("%d hubs run in place of %d csi-attachers: %v", hubs, attachers, s.started())
	}
	s.attach("b")
	s.detach("a")
	s.called(1, 1, "b")

	s.apply("original")
	if got := s.attachers(); got != attachers || slices.ContainsFunc(s.started(), func(name string) bool { return strings.HasPrefix(name, "attach-hub") }) {
		s.t.Fatalf("%d csi-attachers run, want %d: %v", got, attachers, s.started())
	}
	s.detach("b")
	s.called(0, 1)
}

// made returns the workload of csi-attacher. If the applied one is a deployer, it is the Deployment that the deployer
// makes with the image of its variable.
func (s *handover) made(applied *unstructured.Unstructured) *unstructured.Unstructured {
	s.t.Helper()
	if s.row.made == "" {
		return applied
	}
	deployer := as[appsv1.Deployment](s.t, applied)
	attacher := find(s.t, readObjects(s.t, manifestOf(s.row.manifest)), "Deployment", s.row.made)
	for _, e := range deployer.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "CSI_ATTACHER_IMAGE" {
			containers, _, _ := unstructured.NestedSlice(attacher.Object, "spec", "template", "spec", "containers")
			containers[0].(map[string]any)["image"] = e.Value
			s.must(unstructured.SetNestedSlice(attacher.Object, containers, "spec", "template", "spec", "containers"))
		}
	}
	s.applier.apply(attacher)
	return attacher
}
