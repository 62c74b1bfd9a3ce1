package deploy_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// adoptRow is a manifest, and who is who in it.
type adoptRow struct {
	manifest     string
	flags        []string  // of adopt
	drivers      []standIn // in the Pod of csi-attacher
	withoutLease bool      // csi-attacher has no leader election
}

func (r adoptRow) name() string {
	name := r.manifest
	for _, flag := range r.flags {
		if mode, ok := strings.CutPrefix(flag, "--mode="); ok {
			name += "-" + mode
		}
	}
	return name
}

const pluginProxy = "/var/lib/csi/sockets/pluginproxy/csi.sock"

// They differ in the kind of the workload, in the users and the fsGroup, in the host's network, in where the socket is, in the
// number of csi-attachers, and in who has the Lease. The tests of internal/adopt have all other manifests.
var proxyRows = []adoptRow{
	{manifest: "ebs", drivers: []standIn{{"ebs.csi.aws.com", "ebs-plugin", pluginProxy}}},
	{manifest: "vsphere", drivers: []standIn{{"csi.vsphere.vmware.com", "vsphere-csi-controller", "/csi/csi.sock"}}},
	{manifest: "daemonset", drivers: []standIn{{"block.csi.example.com", "driver", pluginProxy}}},
	{manifest: "alibaba", flags: []string{"--driver=external-disk-attacher=diskplugin.csi.alibabacloud.com",
		"--driver=external-oss-attacher=ossplugin.csi.alibabacloud.com"},
		drivers: []standIn{
			{"diskplugin.csi.alibabacloud.com", "csi-provisioner", "/var/lib/kubelet/csi-provisioner/diskplugin.csi.alibabacloud.com/csi.sock"},
			{"ossplugin.csi.alibabacloud.com", "csi-provisioner", "/var/lib/kubelet/csi-provisioner/ossplugin.csi.alibabacloud.com/csi.sock"}}},
	{manifest: "synology", withoutLease: true, drivers: []standIn{{"csi.san.synology.com", "csi-plugin", pluginProxy}}},
}

const dropIn = "--mode=drop-in"

var dropInRows = []adoptRow{
	{manifest: "ebs", flags: []string{dropIn}, drivers: []standIn{{"ebs.csi.aws.com", "ebs-plugin", pluginProxy}}},
	{manifest: "azuredisk", flags: []string{dropIn}, drivers: []standIn{{"disk.csi.azure.com", "azuredisk", "/csi/csi.sock"}}},
	{manifest: "hostpath", flags: []string{dropIn}, drivers: []standIn{{"hostpath.csi.k8s.io", "hostpath", "/csi/csi.sock"}}, withoutLease: true},
}

// Their Pods run at the same time in one cluster, and one hub serves them all.
func TestDriversAreMovedToTheHubAndBackByWhatAdoptWrites(t *testing.T) {
	a := newAdopters(t)
	folders, errs := make([]string, len(proxyRows)), make([]error, len(proxyRows))
	for i, row := range proxyRows {
		folders[i], errs[i] = a.adopt(row)
	}
	a.startHub(folders...)
	var rows sync.WaitGroup
	for i, row := range proxyRows {
		rows.Go(func() {
			t.Run(row.name(), func(t *testing.T) {
				if errs[i] != nil {
					t.Fatal(errs[i])
				}
				a.begin(t, row, folders[i]).move()
			})
		})
	}
	rows.Wait()
}

// move moves the drivers of a manifest to the hub and back, in the documented order.
func (s *handover) move() {
	s.apply("original")
	s.attach("a")
	s.called(1, 0, "a")

	// The hub looks on through the proxy, and csi-attacher works.
	s.prepare()
	s.apply("observe")
	s.serveAll("observe")
	s.attach("b")
	s.waitAll("the checklist is passed", s.passed)
	s.called(1, 0, "a", "b")
	if got := s.attachers(); got != len(s.row.drivers) {
		s.t.Fatalf("%d csi-attachers run, want %d", got, len(s.row.drivers))
	}

	if !s.row.withoutLease {
		s.serveAll("active")
		s.waitAll("it waits for the Lease", func(d status.Driver) bool { return d.State == "WaitingForLease" })
	}
	s.apply("active")
	if got := s.attachers(); got != 0 {
		s.t.Fatalf("%d csi-attachers run, want none", got)
	}
	s.request("c")
	if s.row.withoutLease { // nothing else attaches: the hub observes that "c" waits
		s.serveAll("observe")
		s.waitAll("nobody attaches", func(d status.Driver) bool { return d.Up && d.Observed != nil && d.Observed.Pending > 0 })
		s.called(0, 0, "a", "b")
	}
	s.serveAll("active") // at the address of the new Pod
	s.waitAll("it is ready", func(d status.Driver) bool { return d.State == "Ready" && d.Lease.Mine })
	s.attached("c")
	s.detach("a")
	s.detach("b")
	s.called(1, 2, "c")

	// And back.
	if s.row.withoutLease {
		s.serveAll("paused")
		s.waitAll("it is paused", func(d status.Driver) bool { return d.State == "Paused" && !d.Lease.Mine })
	}
	s.apply("observe")
	s.serveAll("observe")
	s.attach("d")
	s.detach("c")
	s.called(1, 1, "d")
	for _, d := range s.row.drivers {
		s.setEntry(d.driver, nil)
	}
	s.apply("original")
	s.detach("d")
	s.called(0, 1)
}

func (s *handover) serveAll(mode string) {
	s.t.Helper()
	for _, d := range s.row.drivers {
		s.serve(d.driver, mode)
	}
}

func (s *handover) waitAll(what string, holds func(status.Driver) bool) {
	s.t.Helper()
	for _, d := range s.row.drivers {
		s.waitDriver(d.driver, what, holds)
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
