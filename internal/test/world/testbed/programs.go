package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// HubOptions say how to run csi-attach-hub.
type HubOptions struct {
	Binary        string        // of cmd/csi-attach-hub
	Kubeconfig    string        // path
	Config        string        // path of drivers.yaml; empty when Args say what to serve
	ShutdownGrace time.Duration // 0: the hub's own default
	Verbosity     int           // -v
	HTTPEndpoint  string        // with Config; empty: none, so that many hubs get on with each other
	Args          []string      // further flags
	Env           []string      // added to this process's environment
	LogPath       string        // gets its output, appended
	Name          string        // for errors; empty: "hub"
}

// HubGOGC is what the chart sets the environment variable GOGC of a hub to.
const HubGOGC = "50"

// StartHub starts a hub and does not wait until it is ready: the hub itself
// waits for whatever is not there yet. The caller must Stop or Kill it.
func StartHub(ctx context.Context, o HubOptions) (*Process, error) {
	if o.Binary == "" || o.Kubeconfig == "" || o.LogPath == "" {
		return nil, errors.New("start hub: Binary, Kubeconfig and LogPath must be set")
	}
	args := []string{"--kubeconfig", o.Kubeconfig, "-v", strconv.Itoa(o.Verbosity)}
	if o.Config != "" {
		args = append(args, "--config", o.Config, "--http-endpoint", o.HTTPEndpoint)
	}
	if o.ShutdownGrace > 0 {
		args = append(args, "--shutdown-grace", o.ShutdownGrace.String())
	}
	if o.Name == "" {
		o.Name = "hub"
	}
	return StartProcess(ctx, ProcessOptions{Name: o.Name, Path: o.Binary, Args: append(args, o.Args...), Env: append([]string{"GOGC=" + HubGOGC}, o.Env...), LogPath: o.LogPath})
}

// FreeAddress returns an address on this machine that nobody listens on, for a process
// that is about to start.
func FreeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
