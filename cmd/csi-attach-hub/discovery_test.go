package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// csiDriver makes a CSIDriver object for the time of the test: the hubs of later tests discover what is left. With an
// endpoint it has the annotation.
func (s *scene) csiDriver(driver, endpoint string, required bool) {
	s.t.Helper()
	object := testbed.CSIDriver{Name: driver, NoAttach: !required}
	if endpoint != "" {
		object.Annotations = map[string]string{registry.EndpointAnnotation: endpoint}
	}
	s.create(object)
	s.t.Cleanup(func() {
		if err := s.Cluster.Delete(context.Background(), object); err != nil { // the context of the test has ended by now
			s.t.Error(err)
		}
	})
}

// countConnections counts who connects to an address, until the test ends.
func countConnections(t *testing.T, network, address string, connections *atomic.Int32) (endpoint string) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return network + "://" + l.Addr().String()
}

// discovering has drivers.yaml allow the sockets of the scene's folder that begin with its prefix.
func (s *scene) discovering() {
	s.configure(`discovery:
  csiDrivers:
    enabled: true
    endpointTemplate: unix://%[1]s/{driver}
    allowedEndpoints: ["unix://%[1]s/%[2]s-*", "tcp://csi.storage.svc:*"]
drivers: []
`, s.Dir, s.prefix)
}

func TestAnnotationOutsideAllowedEndpointsIsNeverContacted(t *testing.T) {
	t.Parallel()
	s := newScene(t, "outside")
	s.discovering()
	good := s.serve("good")
	s.csiDriver(good.Name, good.Endpoint(), true)
	var connections atomic.Int32
	socket := countConnections(t, "unix", filepath.Join(s.Dir, "elsewhere"), &connections)
	outside := map[string]string{
		"socket":   socket,
		"address":  countConnections(t, "tcp", "127.0.0.1:0", &connections),
		"spelling": "unix://" + filepath.Join(s.Dir, s.prefix+"-x") + "/../elsewhere",
	}
	hub := s.startHub()
	attachments := s.attachments(good.Name, 5)
	for name, endpoint := range outside {
		s.csiDriver(s.prefix+"-"+name, endpoint, true)
		attachments = append(attachments, s.attachments(s.prefix+"-"+name, 1)...)
	}
	s.create(attachments...)
	s.waitFor("those of the good driver attached", attachedAtLeast(5))
	for name := range outside {
		s.logged(hub, fmt.Sprintf(`"Conflict: discovered driver is not served" driver="%s-%s"`, s.prefix, name), 1)
	}
	s.checkExit(hub)
	if n := connections.Load(); n > 0 {
		t.Errorf("the sockets and addresses outside were connected to %d times", n)
	}
	s.waitFor("nothing else attached", func(own []*storagev1.VolumeAttachment) bool { return len(own) == 8 && countAttached(own) == 5 })
}

// waitNotServed waits until the hub does not show a driver.
func (s *scene) waitNotServed(driver string) {
	s.t.Helper()
	s.until(func() bool {
		var shown status.DriverList
		s.getJSON("/api/v1/drivers", &shown)
		return !slices.ContainsFunc(shown.Drivers, func(d status.Driver) bool { return d.Name == driver })
	}, func() string { return driver + " is still served" })
}

func TestDriversOfCSIDriverObjectsAreServedUntilNothingOfThemIsLeft(t *testing.T) {
	t.Parallel()
	s := newScene(t, "found")
	s.discovering()
	// Nobody has done anything for a volume of this one, and nobody is to.
	idle := s.serve("idle")
	s.csiDriver(idle.Name, "", false)
	s.create(s.attachments(idle.Name, 1)...)
	template, annotation := s.serve("template"), s.serve("annotation")
	s.csiDriver(template.Name, "", true)
	hub := s.startHub()
	byTemplate, byAnnotation := s.attachments(template.Name, 5), s.attachments(annotation.Name, 6)
	s.create(byTemplate...)
	s.waitFor("those of the driver that was there attached", attachedAtLeast(5))
	s.csiDriver(annotation.Name, annotation.Endpoint(), true) // and while the hub runs
	s.create(byAnnotation[:5]...)
	s.waitFor("those of both attached", attachedAtLeast(10))

	// attachRequired becomes false: the API server lets nobody change the field.
	s.delete(testbed.CSIDriver{Name: template.Name})
	s.create(testbed.CSIDriver{Name: template.Name, NoAttach: true})
	s.waitFor("those of the first one detached, without finalizers", func(own []*storagev1.VolumeAttachment) bool {
		done := slices.DeleteFunc(own, func(va *storagev1.VolumeAttachment) bool { return va.Status.Attached || len(va.Finalizers) > 0 })
		return len(done) == 6 // and that of idle
	})
	s.waitNotServed(template.Name)

	// Without an object Kubernetes takes attachRequired for true.
	s.delete(testbed.CSIDriver{Name: annotation.Name})
	s.logged(hub, `(deleted)`, 1)
	s.create(byAnnotation[5])
	s.waitFor("a sixth attached", attachedAtLeast(6))
	s.delete(slices.Concat(byAnnotation, byTemplate)...)
	s.waitFor("only that of idle left", func(own []*storagev1.VolumeAttachment) bool { return len(own) == 1 })
	s.waitNotServed(annotation.Name)

	for _, d := range []*testbed.Driver{template, annotation} {
		if b := d.Backend.Books(); b.Check() != nil || len(b.Attached) > 0 {
			t.Errorf("%s: attached %v, violations %+v", d.Name, b.Attached, b.Violations)
		}
	}
	for d, want := range map[*testbed.Driver]int{idle: 0, annotation: 1} { // it was not interrupted
		if n := d.Backend.Books().Methods[fakecsi.GetPluginInfo].Begun; n != want {
			t.Errorf("%s was connected to %d times, want %d", d.Name, n, want)
		}
	}
	s.checkExit(hub)
}
