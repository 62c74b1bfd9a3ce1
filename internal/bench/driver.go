package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// driver is a CSI driver in this process, shared by all competitors.
type driver struct {
	name    string
	socket  string
	backend *fakecsi.Backend
	server  *fakecsi.Server
}

// driverNames are those of so many drivers.
func driverNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("driver-%03d.bench.example.com", i)
	}
	return names
}

// startDriver starts a driver with its socket in dir. Its books keep each call only if
// that is asked for. The caller must stop it.
func startDriver(dir string, o fakecsi.Options, latency time.Duration) (*driver, error) {
	// Short: paths of sockets have narrow limits.
	short, _, _ := strings.Cut(o.Name, ".")
	d := &driver{name: o.Name, socket: filepath.Join(dir, short+".sock")}
	var err error
	if d.backend, err = fakecsi.New(o); err != nil {
		return nil, err
	}
	err = d.backend.Set(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{
		fakecsi.ControllerPublishVolume:   {Base: latency},
		fakecsi.ControllerUnpublishVolume: {Base: latency},
	}})
	if err != nil {
		return nil, err
	}
	if d.server, err = fakecsi.NewServer(fakecsi.ServerOptions{Backend: d.backend, Endpoint: d.endpoint()}); err != nil {
		return nil, err
	}
	return d, d.server.Start()
}

func (d *driver) endpoint() string { return "unix://" + d.socket }

// stop ends what is in flight too.
func (d *driver) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	d.server.Stop(ctx)
}

// calls are how many calls of two methods were made.
type calls struct{ publish, unpublish int }

func (c calls) minus(before calls) calls {
	return calls{c.publish - before.publish, c.unpublish - before.unpublish}
}

// all are also those that an attach, or a detach, should not make.
func (c calls) all() int { return c.publish + c.unpublish }

func countCalls(drivers []*driver) calls {
	var sum calls
	for _, d := range drivers {
		books := d.backend.Books()
		sum.publish += books.Methods[fakecsi.ControllerPublishVolume].Begun
		sum.unpublish += books.Methods[fakecsi.ControllerUnpublishVolume].Begun
	}
	return sum
}
