package testbed

import (
	"cmp"
	"fmt"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// Driver is a CSI driver in this process, and the storage behind it. The storage outlives
// the end of the Server.
type Driver struct {
	Name    string
	Socket  string // path
	Proxy   string // endpoint of the proxy before it, for drivers.yaml; empty: none
	Backend *fakecsi.Backend
	Server  *fakecsi.Server
}

// ServeDriver serves a driver on a socket, whose path must be short. The caller must stop
// or crash the Server.
func ServeDriver(o fakecsi.Options, socket string) (*Driver, error) {
	d := &Driver{Name: o.Name, Socket: socket}
	var err error
	if d.Backend, err = fakecsi.New(o); err != nil {
		return nil, err
	}
	if d.Server, err = fakecsi.NewServer(fakecsi.ServerOptions{Backend: d.Backend, Endpoint: d.Endpoint()}); err != nil {
		return nil, err
	}
	return d, d.Server.Start()
}

// Endpoint is where the driver listens, as drivers.yaml names it.
func (d *Driver) Endpoint() string { return "unix://" + d.Socket }

// Entry is the driver's line in drivers.yaml. settings are further ones in YAML's flow
// style, such as "workers: 4, timeout: 2s"; they may be empty.
func (d *Driver) Entry(settings string) string {
	if settings != "" {
		settings = ", " + settings
	}
	return fmt.Sprintf("  - {name: %s, endpoint: %q%s}\n", d.Name, cmp.Or(d.Proxy, d.Endpoint()), settings)
}

// ConfigHead begins each drivers.yaml.
const ConfigHead = "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n"

// NodeID is every driver's ID of a node.
func NodeID(node string) string { return "id-of-" + node }
