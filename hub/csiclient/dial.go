package csiclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// dialTimeout bounds connecting and the handshakes of TLS and HTTP/2.
const dialTimeout = 10 * time.Second

// dial connects to the driver, with the TLS material unless it is nil. It returns a Session whose driver is not verified yet.
func dial(ctx context.Context, d registry.Driver, material *tlsfiles.Material, count CallFunc) (*Session, error) {
	ending, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := connectRaw(ending, d.Endpoint)
	if err != nil {
		return nil, err
	}
	conn, creds := newConnection(raw), insecure.NewCredentials()
	if material != nil {
		secured, err := secure(ending, raw, d.TLS, material)
		if err != nil {
			raw.Close()
			return nil, fmt.Errorf("speak TLS with %s: %w", d.Endpoint, err)
		}
		conn, creds = secured, handshaken{creds}
	}
	s := newSession(context.WithoutCancel(ctx), d.Name, count)
	if s.conn, err = newClient(ending, d, conn, creds, s.intercept); err != nil {
		return nil, err
	}
	return s, nil
}

// connectRaw connects to one address, also if the name has several: a race must not decide
// which of several controllers is asked. gRPC's own dialer does not report why it failed.
func connectRaw(ctx context.Context, endpoint registry.Endpoint) (net.Conn, error) {
	dialer := net.Dialer{
		FallbackDelay: -1, // one address after the other
		// TCP notices within half a minute that the machine at the other end of an idle connection is lost. gRPC's
		// keepalive is off: servers demand five minutes between two pings, allow no ping without a call, and hang up
		// otherwise (ENHANCE_YOUR_CALM). Session.Probe notices a driver that does not answer.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	return dialer.DialContext(ctx, endpoint.Network(), endpoint.Address())
}

// newClient makes a gRPC client on a connection, which it owns from then on, and blocks until
// the client is ready. The client never dials again.
func newClient(ctx context.Context, d registry.Driver, conn *connection, creds credentials.TransportCredentials, intercept grpc.UnaryClientInterceptor) (*grpc.ClientConn, error) {
	var taken atomic.Bool
	client, err := grpc.NewClient("passthrough:///"+d.Endpoint.Address(),
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errors.New("the connection to the driver has ended")
			}
			return conn, nil
		}),
		grpc.WithAuthority(authority(d)),
		grpc.WithIdleTimeout(0), // gRPC would close an idle connection
		grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(intercept, conn.guard.call),
		grpc.WithStatsHandler(conn.guard),
		grpc.WithMaxHeaderListSize(maxHeaders),
		// gRPC would raise them to 16 MiB for a driver that seems fast, and keep as much for each call that
		// the driver answers wrongly. A call that reads a longer message raises its own window.
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connectionWindow),
	)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("set up gRPC for %s: %w", d.Endpoint, err)
	}
	if err := waitReady(ctx, client); err != nil {
		client.Close()
		conn.Close()
		return nil, fmt.Errorf("speak gRPC with %s: %w", d.Endpoint, whyNoGRPC(d, conn, err))
	}
	return client, nil
}

// authority returns the :authority of all calls. The path of a socket would be invalid, and
// some servers insist on a valid :authority.
func authority(d registry.Driver) string {
	name := cmp.Or(d.TLS.ServerName, d.Endpoint.Host(), "localhost")
	if strings.Contains(name, ":") {
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
