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
	// maxMessageSize of an answer. gRPC's own 4 MiB are too little for a ListVolumes
	// page of drivers that ignore max_entries.
	maxMessageSize = 16 << 20

	// A machine that is gone without a word is found out within half a minute: by
	// keepalive probes of TCP while nothing is to be sent, by the user timeout while
	// something is. gRPC's own keepalive is off: servers enforce five minutes between
	// two pings, none without a call, and hang up (ENHANCE_YOUR_CALM) on who disagrees.
	// A process that lives and does not answer is found out by Session.Probe.
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
	userTimeout       = 30 * time.Second
)

// link is a connection that is ready and that never dials again.
type link struct {
	*grpc.ClientConn
	wire     *wire
	material *tlsfiles.Material // that it was secured with; nil without TLS
}

// dial makes a link to the endpoint of a driver.
func dial(ctx context.Context, d registry.Driver, more ...grpc.DialOption) (link, error) {
	if d.TLS.Enabled() {
		// Before anything is contacted: what is wrong on this side is not the driver's fault.
		material, err := loadMaterial(d.TLS)
		if err != nil {
			return link{}, err
		}
		return dialSecured(ctx, d, material, more...)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := connectRaw(ctx, d.Endpoint)
	if err != nil {
		return link{}, err
	}
	on := newWire(raw)
	conn, err := speak(ctx, d, on, append(more, plain())...)
	return link{ClientConn: conn, wire: on}, err
}

// dialSecured makes a link that is secured with what was in the TLS files.
func dialSecured(ctx context.Context, d registry.Driver, material *tlsfiles.Material, more ...grpc.DialOption) (link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := connectRaw(ctx, d.Endpoint)
	if err != nil {
		return link{}, err
	}
	secured, creds, err := secure(ctx, raw, d.TLS, material)
	if err != nil {
		raw.Close()
		return link{}, fmt.Errorf("speak TLS with %s: %w", d.Endpoint, err)
	}
	conn, err := speak(ctx, d, secured, append(more, creds)...)
	return link{ClientConn: conn, wire: secured, material: material}, err
}

// connectRaw connects to one address, also if a name has several: which of several
// controllers is asked must not depend on a race. It is done here and not by gRPC,
// which keeps the reason of a failure to itself.
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

// speak makes gRPC ready on a connection, which it takes over.
func speak(ctx context.Context, d registry.Driver, on *wire, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	var taken atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+d.Endpoint.Address(), append(more,
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errors.New("the connection to the driver has ended")
			}
			return on, nil
		}),
		grpc.WithAuthority(authority(d)),
		grpc.WithIdleTimeout(0), // an idle connection is not a lost one
		grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(on.departures.call),
		grpc.WithStatsHandler(&on.departures),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	)...)
	if err != nil {
		on.Close()
		return nil, fmt.Errorf("set up gRPC for %s: %w", d.Endpoint, err)
	}
	if err := waitReady(ctx, conn); err != nil {
		conn.Close()
		if !taken.Load() {
			on.Close()
		}
		return nil, fmt.Errorf("speak gRPC with %s: %w", d.Endpoint, whyNoGRPC(ctx, d, on, err))
	}
	return conn, nil
}

// authority is the :authority of all calls. A socket's path is no valid one, and some
// servers insist on one.
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

// errNoGRPC says that the other side hung up, or talks something else.
var errNoGRPC = errors.New("connected, but what listens there does not answer as a gRPC server")

func waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		switch state := conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errNoGRPC
		default:
			if !conn.WaitForStateChange(ctx, state) {
				return ctx.Err()
			}
		}
	}
}
