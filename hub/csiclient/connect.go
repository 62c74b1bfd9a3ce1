package csiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// dialTimeout bounds connecting and the HTTP/2 handshake.
	dialTimeout = 10 * time.Second
	// callTimeout bounds each of the calls that verify a driver, one by one: some
	// drivers ask their cloud before they answer (external-attacher PR 561).
	callTimeout = 10 * time.Second
	// maxMessageSize of an answer. gRPC's own 4 MiB are too little for a ListVolumes
	// page of drivers that ignore max_entries.
	maxMessageSize = 16 << 20
)

// ErrNotReady says that the driver answered its Probe with ready=false.
var ErrNotReady = errors.New("driver says that it is not ready (Probe)")

// NameError says that another driver than the expected one answers at the endpoint.
type NameError struct{ Want, Got string }

// Error names both drivers.
func (e *NameError) Error() string {
	return fmt.Sprintf("the driver behind this endpoint calls itself %q, not %q: correct the name or the endpoint", e.Got, e.Want)
}

// Connect dials the endpoint of a driver once and verifies the driver behind it. It
// blocks until the Session is ready, something failed (ErrNotReady, *NameError, a
// dial error or the gRPC status of the call that failed) or ctx ends. The caller
// owns the Session and closes it.
func Connect(ctx context.Context, d registry.Driver) (*Session, error) {
	if err := d.CheckTransport(); err != nil {
		return nil, err
	}
	if d.TLS.Enabled() {
		return nil, errors.New("TLS to drivers is not supported by this version")
	}
	conn, err := dial(ctx, d.Endpoint)
	if err != nil {
		return nil, err
	}
	info, err := verify(ctx, conn, d.Name)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &Session{conn: conn, info: info, done: make(chan struct{})}
	go s.watch() // ends with the connection
	return s, nil
}

// dial returns a connection that is ready and that never dials again.
func dial(ctx context.Context, endpoint registry.Endpoint) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// Dialled here and not by gRPC, which keeps the reason of a failure to itself.
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, endpoint.Network(), endpoint.Address())
	if err != nil {
		return nil, err
	}
	var taken atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+endpoint.Address(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errors.New("the connection to the driver has ended")
			}
			return raw, nil
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A socket's path is no valid :authority, and some servers insist on one.
		grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(0), // an idle connection is not a lost one
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("set up gRPC for %s: %w", endpoint, err)
	}
	if err := waitReady(ctx, conn); err != nil {
		conn.Close()
		if !taken.Load() {
			raw.Close()
		}
		return nil, fmt.Errorf("speak gRPC with %s: %w", endpoint, err)
	}
	return conn, nil
}

func waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("connected, but what listens there does not answer as a gRPC server")
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return ctx.Err()
			}
		}
	}
}

// verify asks the driver whether it is ready, who it is and what it can do.
func verify(ctx context.Context, conn *grpc.ClientConn, name string) (Info, error) {
	ready, err := ask(ctx, conn, rpc.Probe)
	if err != nil {
		return Info{}, fmt.Errorf("probe driver: %w", err)
	}
	if !ready {
		return Info{}, ErrNotReady
	}
	plugin, err := ask(ctx, conn, func(ctx context.Context, conn *grpc.ClientConn) (*csi.GetPluginInfoResponse, error) {
		return csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	})
	if err != nil {
		return Info{}, fmt.Errorf("get plugin info: %w", err)
	}
	if plugin.GetName() != name {
		return Info{}, &NameError{Want: name, Got: plugin.GetName()}
	}
	capabilities, err := readCapabilities(ctx, conn)
	if err != nil {
		return Info{}, err
	}
	return Info{Name: name, Version: plugin.GetVendorVersion(), Capabilities: capabilities}, nil
}

func readCapabilities(ctx context.Context, conn *grpc.ClientConn) (Capabilities, error) {
	plugin, err := ask(ctx, conn, rpc.GetPluginCapabilities)
	if err != nil {
		return Capabilities{}, fmt.Errorf("get plugin capabilities: %w", err)
	}
	if !plugin[csi.PluginCapability_Service_CONTROLLER_SERVICE] {
		return Capabilities{}, nil
	}
	controller, err := ask(ctx, conn, rpc.GetControllerCapabilities)
	if err != nil {
		return Capabilities{}, fmt.Errorf("get controller capabilities: %w", err)
	}
	return Capabilities{
		PublishUnpublish:      controller[csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME],
		PublishReadonly:       controller[csi.ControllerServiceCapability_RPC_PUBLISH_READONLY],
		SingleNodeMultiWriter: controller[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER],
		ListPublishedNodes: controller[csi.ControllerServiceCapability_RPC_LIST_VOLUMES] &&
			controller[csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES],
	}, nil
}

// ask gives one of the verifying calls a deadline of its own.
func ask[T any](ctx context.Context, conn *grpc.ClientConn, call func(context.Context, *grpc.ClientConn) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, conn)
}
