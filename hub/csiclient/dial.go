package csiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// dialTimeout bounds connecting and the handshakes of TLS and HTTP/2.
	dialTimeout = 10 * time.Second

	// The loss of a machine is noticed within half a minute: by keepalive probes of TCP on an
	// idle connection, by the user timeout while data is unacknowledged. gRPC's keepalive is
	// off: servers demand five minutes between two pings, allow no ping without a call, and
	// hang up otherwise (ENHANCE_YOUR_CALM). Session.Probe notices a process that lives and
	// does not answer.
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
	userTimeout       = 30 * time.Second
)

// dial makes a client of the driver. It also returns the TLS material of its connection, nil
// without TLS.
func dial(ctx context.Context, d registry.Driver, more ...grpc.DialOption) (*grpc.ClientConn, *tlsfiles.Material, error) {
	if d.TLS.Enabled() {
		// First: an error on this side must not look like an error of the driver.
		material, err := loadMaterial(d.TLS)
		if err != nil {
			return nil, nil, err
		}
		client, err := dialSecured(ctx, d, material, more...)
		return client, material, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := connectRaw(ctx, d.Endpoint)
	if err != nil {
		return nil, nil, err
	}
	client, err := newClient(ctx, d, newConnection(raw), append(more, plaintext())...)
	return client, nil, err
}

// dialSecured makes a client whose connection uses the TLS material.
func dialSecured(ctx context.Context, d registry.Driver, material *tlsfiles.Material, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := connectRaw(ctx, d.Endpoint)
	if err != nil {
		return nil, err
	}
	conn, creds, err := secure(ctx, raw, d.TLS, material)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("speak TLS with %s: %w", d.Endpoint, err)
	}
	return newClient(ctx, d, conn, append(more, creds)...)
}

// connectRaw connects to one address, also if the name has several: a race must not decide
// which of several controllers is asked. gRPC's own dialer does not report why it failed.
func connectRaw(ctx context.Context, endpoint registry.Endpoint) (net.Conn, error) {
	dialer := net.Dialer{
		FallbackDelay: -1, // one address after the other
		Control:       setUserTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
	}
	return dialer.DialContext(ctx, endpoint.Network(), endpoint.Address())
}

// newClient makes a gRPC client on a connection, which it owns from then on, and blocks until
// the client is ready. The client never dials again.
func newClient(ctx context.Context, d registry.Driver, conn *connection, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	var taken atomic.Bool
	client, err := grpc.NewClient("passthrough:///"+d.Endpoint.Address(), append(more,
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errors.New("the connection to the driver has ended")
			}
			return conn, nil
		}),
		grpc.WithAuthority(authority(d)),
		grpc.WithIdleTimeout(0), // gRPC would close an idle connection
		grpc.WithDisableServiceConfig(),
		explaining(d.Name),
		grpc.WithChainUnaryInterceptor(conn.guard.call),
		grpc.WithStatsHandler(conn.guard),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		// gRPC would raise them to 16 MiB for a driver that seems fast, and keep as much for each call that
		// the driver answers wrongly. A call that reads a longer message raises its own window.
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
	)...)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("set up gRPC for %s: %w", d.Endpoint, err)
	}
	if err := waitReady(ctx, client); err != nil {
		client.Close()
		if !taken.Load() {
			conn.Close()
		}
		return nil, fmt.Errorf("speak gRPC with %s: %w", d.Endpoint, whyNoGRPC(ctx, d, conn, err))
	}
	return client, nil
}

// authority returns the :authority of all calls. The path of a socket would be invalid, and
// some servers insist on a valid :authority.
func authority(d registry.Driver) string {
	name := d.TLS.ServerName
	if name == "" {
		name = d.Endpoint.Host()
	}
	switch {
	case name == "":
		return "localhost"
	case strings.Contains(name, ":"):
		return "[" + name + "]"
	}
	return name
}

// errNoGRPC means that the other side hung up, or speaks another protocol.
var errNoGRPC = errors.New("connected, but what listens there does not answer as a gRPC server")

// waitReady blocks until the client is ready, has failed or ctx ends.
func waitReady(ctx context.Context, client *grpc.ClientConn) error {
	client.Connect()
	for {
		switch state := client.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errNoGRPC
		default:
			if !client.WaitForStateChange(ctx, state) {
				return ctx.Err()
			}
		}
	}
}
