package csiclient

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const driverName = "block.csi.example.com"

// testContext ends a test that would hang.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// socket returns the endpoint of a socket that is not there yet, with a path that
// is short enough for one.
func socket(t *testing.T) registry.Endpoint {
	t.Helper()
	dir, err := os.MkdirTemp("", "cc")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return registry.Endpoint("unix://" + filepath.Join(dir, "csi.sock"))
}

// driver is a fake CSI driver on a socket.
type driver struct {
	*fakecsi.Backend
	server   *fakecsi.Server
	endpoint registry.Endpoint
}

func startDriver(t *testing.T, knobs fakecsi.Knobs) driver {
	t.Helper()
	d := driver{endpoint: socket(t)}
	var err error
	if d.Backend, err = fakecsi.New(fakecsi.Options{Name: driverName, VendorVersion: "1.2.3"}); err != nil {
		t.Fatal(err)
	}
	d.setKnobs(t, knobs)
	if d.server, err = fakecsi.NewServer(fakecsi.ServerOptions{Backend: d.Backend, Endpoint: string(d.endpoint)}); err != nil {
		t.Fatal(err)
	}
	must(t, d.server.Start())
	t.Cleanup(d.server.Crash)
	return d
}

func (d driver) setKnobs(t *testing.T, knobs fakecsi.Knobs) {
	t.Helper()
	must(t, d.Set(knobs))
}

// awaitCall returns when so many calls of the method are, or were, in flight.
func (d driver) awaitCall(ctx context.Context, t *testing.T, method fakecsi.Method, begun int) {
	t.Helper()
	err := d.Wait(ctx, func(b fakecsi.Books) bool { return b.Methods[method].Begun >= begun })
	must(t, err)
}

func connect(ctx context.Context, t *testing.T, endpoint registry.Endpoint) *Session {
	t.Helper()
	s, err := Connect(ctx, at(endpoint), nil)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func publishRequest(volume string) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{
		VolumeId: volume,
		NodeId:   "n1",
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		},
	}
}

// at is the driver as it is configured when it listens at an endpoint.
func at(endpoint registry.Endpoint) registry.Driver {
	return registry.Driver{Name: driverName, Endpoint: endpoint}
}

// lister is a driver whose ListVolumes does what no good driver does.
type lister struct {
	*fakecsi.Backend
	list func(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error)
}

func (l lister) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return l.list(ctx, req)
}

// newLister returns a server, not started, of a driver with this ListVolumes.
func newLister(t *testing.T, list func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error)) *grpc.Server {
	t.Helper()
	backend, err := fakecsi.New(fakecsi.Options{Name: driverName})
	must(t, err)
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, backend)
	csi.RegisterControllerServer(server, lister{Backend: backend, list: list})
	return server
}

// startLister serves such a driver on a socket.
func startLister(t *testing.T, list func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error)) registry.Endpoint {
	t.Helper()
	endpoint, server := socket(t), newLister(t, list)
	listener, err := fakecsi.Listen(string(endpoint))
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return endpoint
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
