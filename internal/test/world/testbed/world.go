package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// hubGrace is how long a hub may take to end.
const hubGrace = 2 * time.Minute

// WorldOptions say what a World is made of.
type WorldOptions struct {
	// Dir is an existing folder for sockets, state, drivers.yaml and logs. The path of a
	// socket has a narrow limit, so this one must be short. The caller removes it.
	Dir string
	// Plane runs already, and goes on running after Stop. Nil: the World starts a control plane
	// as ControlPlane says, in a folder below Dir.
	Plane        *ControlPlane
	ControlPlane ControlPlaneOptions
	// Hub is the binary of cmd/csi-attach-hub; StartHub needs it.
	Hub string
	// Drivers are served in this process. Latency is that of each publish and unpublish.
	Drivers []fakecsi.Options
	Latency fakecsi.Latency
	// Nodes are made with a CSINode that has every driver.
	Nodes []string
	// OnAttachment (may be nil) is told every change of a VolumeAttachment, as the onChange of
	// WatchVolumeAttachments.
	OnAttachment func(was, now *storagev1.VolumeAttachment)
}

// World is a control plane, the drivers and nodes of a cluster, and the hubs that
// StartHub adds.
type World struct {
	Dir         string
	Plane       *ControlPlane
	Cluster     *Cluster
	Drivers     []*Driver
	Nodes       []string
	Attachments *Watcher[*storagev1.VolumeAttachment]

	o    WorldOptions
	mu   sync.Mutex
	hubs []*Hub // guarded by mu
}

// StartWorld starts all but the hubs, and blocks until it can be used. ctx bounds the start only.
// The caller must Stop the World; with an error nothing is left running.
func StartWorld(ctx context.Context, o WorldOptions) (*World, error) {
	w := &World{Dir: o.Dir, Plane: o.Plane, Nodes: o.Nodes, o: o}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.Stop(context.WithoutCancel(ctx)))
	}
	return w, nil
}

func (w *World) start(ctx context.Context) (err error) {
	if w.Plane == nil {
		o := w.o.ControlPlane
		o.Dir = filepath.Join(w.Dir, "controlplane")
		if w.Plane, err = StartControlPlane(ctx, o); err != nil {
			return err
		}
	}
	w.Cluster = NewCluster(w.Plane.Clientset())
	for _, o := range w.o.Drivers {
		short, _, _ := strings.Cut(o.Name, ".")
		d, err := ServeDriver(o, filepath.Join(w.Dir, short+".sock"))
		if err != nil {
			return err
		}
		w.Drivers = append(w.Drivers, d)
		if err := d.Backend.Set(fakecsi.AttachLatency(w.o.Latency)); err != nil {
			return err
		}
	}
	for _, node := range w.Nodes {
		if err := w.Cluster.Create(ctx, Node{Name: node}, w.CSINode(node)); err != nil {
			return err
		}
	}
	w.Attachments, err = WatchVolumeAttachments(ctx, w.Plane.Clientset(), w.o.OnAttachment)
	return err
}

// CSINode is that of a node, with every driver.
func (w *World) CSINode(node string) CSINode {
	n := CSINode{Node: node, Drivers: map[string]string{}}
	for _, d := range w.Drivers {
		n.Drivers[d.Name] = NodeID(node)
	}
	return n
}

// ConfigPath is that of the hubs' drivers.yaml.
func (w *World) ConfigPath() string { return filepath.Join(w.Dir, "drivers.yaml") }

// WriteConfig writes drivers.yaml with these drivers. defaults is the value of its defaults in
// YAML, such as "{workers: 100}", or empty; settings are those of each driver, as of Entry, and may be nil.
func (w *World) WriteConfig(drivers []*Driver, defaults string, settings func(*Driver) string) error {
	if err := os.WriteFile(w.ConfigPath(), []byte(Config(drivers, defaults, settings)), 0o600); err != nil {
		return fmt.Errorf("write drivers.yaml: %w", err)
	}
	if _, err := registry.ParseManifestFile(w.ConfigPath()); err != nil {
		return fmt.Errorf("check drivers.yaml: %w", err)
	}
	return nil
}

// Config is a drivers.yaml, as WriteConfig writes it.
func Config(drivers []*Driver, defaults string, settings func(*Driver) string) string {
	var b strings.Builder
	b.WriteString(ConfigHead)
	if defaults != "" {
		fmt.Fprintf(&b, "defaults: %s\n", defaults)
	}
	b.WriteString("drivers:\n")
	for _, d := range drivers {
		entry := d.Entry("")
		if settings != nil {
			entry = d.Entry(settings(d))
		}
		b.WriteString(entry)
	}
	return b.String()
}

// StartHub starts a hub that serves HTTP, as the package's StartHub. What o leaves empty is the
// World's: binary, kubeconfig, drivers.yaml, log, address.
func (w *World) StartHub(ctx context.Context, o HubOptions) (*Hub, error) {
	address, err := FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	o.Name = cmp.Or(o.Name, "hub")
	o.Binary = cmp.Or(o.Binary, w.o.Hub)
	o.Kubeconfig = cmp.Or(o.Kubeconfig, w.Plane.Kubeconfig())
	o.Config = cmp.Or(o.Config, w.ConfigPath())
	o.LogPath = cmp.Or(o.LogPath, filepath.Join(w.Dir, o.Name+".log"))
	o.HTTPEndpoint = cmp.Or(o.HTTPEndpoint, address)
	p, err := StartHub(ctx, o)
	if err != nil {
		return nil, err
	}
	hub := &Hub{Process: p, URL: "http://" + o.HTTPEndpoint}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hubs = append(w.hubs, hub)
	return hub, nil
}

// Processes are the control plane and the hubs that were started, ended or not.
func (w *World) Processes() []*Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	processes := []*Process{w.Plane.Process()}
	for _, h := range w.hubs {
		processes = append(processes, h.Process)
	}
	return processes
}

// Stop stops all that runs, the hubs first, and blocks until it has ended. A process that
// does not end as it should is an error. A process that had ended before is not looked at.
func (w *World) Stop(ctx context.Context) error {
	var errs []error
	w.mu.Lock()
	hubs := w.hubs
	w.mu.Unlock()
	for _, h := range hubs {
		if !h.Ended() {
			errs = append(errs, h.Stop(ctx, hubGrace))
		}
	}
	if w.Attachments != nil {
		w.Attachments.Close()
	}
	for _, d := range w.Drivers {
		d.Server.Crash()
	}
	if w.Plane != nil && w.o.Plane == nil {
		errs = append(errs, w.Plane.Stop(ctx))
	}
	return errors.Join(errs...)
}

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
