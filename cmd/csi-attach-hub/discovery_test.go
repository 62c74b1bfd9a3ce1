package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// folder makes a folder in the scene's own.
func (s *scene) folder(name string) string {
	s.t.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// serve runs a driver in the test's process. It does not put it into drivers.yaml.
func (s *scene) serve(name, socket string) (driver string, backend *fakecsi.Backend) {
	s.t.Helper()
	driver = s.prefix + "-" + name
	return driver, testbed.DriverForTest(s.t, driver, socket).Backend
}

// csiDriver makes a CSIDriver object, with an annotation if endpoint is not "".
func (s *scene) csiDriver(driver, endpoint string) {
	s.t.Helper()
	object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}}
	if endpoint != "" {
		object.Annotations = map[string]string{registry.EndpointAnnotation: endpoint}
	}
	client := s.plane.Clientset().StorageV1().CSIDrivers()
	if _, err := client.Create(s.ctx, object, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		// The context of the test has ended by now.
		if err := client.Delete(context.Background(), driver, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
}

// configure replaces what drivers.yaml says from its third line on.
func (s *scene) configure(format string, args ...any) {
	s.config.Reset()
	s.config.WriteString("apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n")
	fmt.Fprintf(&s.config, format, args...)
}

// countConnections counts who connects to an address, until the test ends.
func countConnections(t *testing.T, network, address string) (endpoint string, connections *atomic.Int32) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	connections = &atomic.Int32{}
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
	return network + "://" + l.Addr().String(), connections
}

func TestAnnotationOutsideAllowedEndpointsIsNeverContacted(t *testing.T) {
	s := newScene(t, "outside")
	s.configure(`discovery:
  csiDrivers:
    enabled: true
    allowedEndpoints: ["unix://%s/*", "tcp://csi.storage.svc:*"]
drivers: []
`, s.folder("in"))
	good, _ := s.serve("good", filepath.Join(s.dir, "in", "good"))
	s.csiDriver(good, "unix://"+filepath.Join(s.dir, "in", "good"))
	socket, bySocket := countConnections(t, "unix", filepath.Join(s.dir, "outside"))
	address, byAddress := countConnections(t, "tcp", "127.0.0.1:0")
	for name, endpoint := range map[string]string{
		"socket":   socket,
		"address":  address,
		"spelling": "unix://" + filepath.Join(s.dir, "in") + "/../outside",
	} {
		s.csiDriver(s.prefix+"-"+name, endpoint)
	}
	hub := s.startHub()
	attachments := s.attachments(good, 5)
	for _, name := range []string{"socket", "address", "spelling"} {
		attachments = append(attachments, s.attachments(s.prefix+"-"+name, 1)...)
	}
	s.create(attachments...)
	s.waitFor("those of the good driver attached", attachedAtLeast(5))
	for _, name := range []string{"socket", "address", "spelling"} {
		logged(s, hub, fmt.Sprintf(`"Conflict: discovered driver is not served" driver="%s-%s"`, s.prefix, name))
	}
	s.checkExit(hub)
	if a, b := bySocket.Load(), byAddress.Load(); a+b > 0 {
		t.Errorf("the socket outside was connected to %d times, the address %d times", a, b)
	}
	s.waitFor("nothing else attached", func(own []*storagev1.VolumeAttachment) bool {
		return len(own) == 8 && countAttached(own) == 5
	})
}

func TestDriversFoundByCSIDriverObjectGetTheirVolumesAttached(t *testing.T) {
	s := newScene(t, "found")
	s.configure(`defaults: {timeout: 1m}
discovery:
  csiDrivers:
    enabled: true
    endpointTemplate: unix://%[1]s/{driver}.sock
    allowedEndpoints: ["unix://%[1]s/*"]
drivers: []
`, s.folder("objects"))
	byTemplate, b1 := s.serve("template", filepath.Join(s.dir, "objects", s.prefix+"-template.sock"))
	byAnnotation, b2 := s.serve("annotation", filepath.Join(s.dir, "objects", "x"))
	s.csiDriver(byTemplate, "")
	hub := s.startHub()
	var all []testbed.Object
	all = append(all, s.attachments(byTemplate, 10)...)
	s.create(all...)
	s.waitFor("those that were there attached", testbed.AllAttached(10))
	// And while it runs.
	s.csiDriver(byAnnotation, "unix://"+filepath.Join(s.dir, "objects", "x"))
	attachments := s.attachments(byAnnotation, 10)
	s.create(attachments...)
	all = append(all, attachments...)
	s.waitFor("all attached", testbed.AllAttached(20))
	s.delete(all...)
	s.waitFor("none left", testbed.NoneLeft[*storagev1.VolumeAttachment])
	for _, b := range []*fakecsi.Backend{b1, b2} {
		if books := b.Books(); len(books.Attached) > 0 || books.ViolationCount > 0 || books.Methods[fakecsi.ControllerPublishVolume].Begun != 10 {
			t.Errorf("%s: attached %v, violations %+v, publishes %+v", books.Driver, books.Attached, books.Violations, books.Methods[fakecsi.ControllerPublishVolume])
		}
	}
	s.checkExit(hub)
}
