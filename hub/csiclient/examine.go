package csiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// Step is the result of one step of Examine. The zero value is a step that was not tried.
type Step struct {
	Tried bool
	Err   error // nil if the step succeeded
}

func tried(err error) Step { return Step{Tried: true, Err: err} }

// Examination is what Examine has found, step by step. Errors and texts are those of Connect.
type Examination struct {
	Connect      Step // the socket or the TCP connection, and gRPC on a connection without TLS
	TLS          Step // the files of this side, the handshake, and gRPC on it; not tried without TLS
	PluginInfo   Step // GetPluginInfo, and the name
	Probe        Step
	Capabilities Step // GetPluginCapabilities and ControllerGetCapabilities

	Remote      string            // address of the connection; "" for a socket, and without a connection
	Own, Server *x509.Certificate // of a handshake that succeeded; read-only
	Info        Info              // as far as the steps succeeded; Name is the reported name, sanitized
}

// Examine connects to a driver once, makes the calls by which Connect verifies it, and ends the connection. After a driver
// that is not ready it goes on, so that one answer has all that is wrong. An empty d.Name stands for any name. It changes
// nothing at the driver. It blocks for at most a minute, or until ctx ends.
func Examine(ctx context.Context, d registry.Driver) Examination {
	var e Examination
	client := e.connect(ctx, d)
	if client == nil {
		return e
	}
	defer client.Close()
	plugin, err := ask(ctx, client, pluginInfo)
	if err != nil {
		e.PluginInfo = tried(fmt.Errorf("get plugin info: %w", err))
		return e
	}
	e.Info.Name, e.Info.Version = Sanitize(plugin.GetName()), Sanitize(plugin.GetVendorVersion())
	if d.Name != "" && plugin.GetName() != d.Name {
		e.PluginInfo = tried(&NameError{Want: d.Name, Got: plugin.GetName()})
		return e
	}
	e.PluginInfo = tried(nil)
	ready, err := ask(ctx, client, rpc.Probe)
	switch {
	case err != nil:
		e.Probe = tried(fmt.Errorf("probe driver: %w", err))
	case !ready:
		e.Probe = tried(ErrNotReady)
	default:
		e.Probe = tried(nil)
	}
	e.Info.Capabilities, err = readCapabilities(ctx, client)
	e.Capabilities = tried(err)
	return e
}

// connect makes a client of the driver. It returns nil after a step that failed.
func (e *Examination) connect(ctx context.Context, d registry.Driver) *grpc.ClientConn {
	if err := d.CheckTransport(); err != nil {
		e.Connect = tried(err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := connectRaw(ctx, d.Endpoint)
	e.Connect = tried(err)
	if err != nil {
		return nil
	}
	if d.Endpoint.Network() == "tcp" {
		e.Remote = raw.RemoteAddr().String()
	}
	conn, creds, step := newConnection(raw), plaintext(), &e.Connect
	if d.TLS.Enabled() {
		step = &e.TLS
		if conn, creds, err = e.secure(ctx, raw, d); err != nil {
			raw.Close()
			e.TLS = tried(err)
			return nil
		}
	}
	client, err := newClient(ctx, d, conn, creds)
	*step = tried(err)
	if err != nil {
		return nil
	}
	return client
}

// secure makes the handshake, and keeps the certificates of both sides.
func (e *Examination) secure(ctx context.Context, raw net.Conn, d registry.Driver) (*connection, grpc.DialOption, error) {
	material, err := loadMaterial(d.TLS)
	if err != nil {
		return nil, nil, err
	}
	conn, creds, err := secure(ctx, raw, d.TLS, material)
	if err != nil {
		return nil, nil, fmt.Errorf("speak TLS with %s: %w", d.Endpoint, err)
	}
	e.Own = material.Certificate.Leaf
	if secured, ok := conn.Conn.(*tls.Conn); ok { // always
		e.Server = secured.ConnectionState().PeerCertificates[0]
	}
	return conn, creds, nil
}
