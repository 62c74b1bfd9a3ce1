package fakecsi

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// peerProcess are the credentials of a server on a unix socket: no bytes are exchanged, and each connection
// knows the process that has made it. A test can so tell its clients apart.
type peerProcess struct{}

// processInfo is the process at the other end of a connection.
type processInfo struct {
	credentials.CommonAuthInfo
	pid int
}

// AuthType implements credentials.AuthInfo.
func (processInfo) AuthType() string { return "process" }

// ServerHandshake implements credentials.TransportCredentials.
func (peerProcess) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	info := processInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}
	if c, ok := conn.(*net.UnixConn); ok {
		info.pid = peerPID(c)
	}
	return conn, info, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (peerProcess) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers only")
}

// Info implements credentials.TransportCredentials.
func (peerProcess) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

// Clone implements credentials.TransportCredentials.
func (p peerProcess) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements credentials.TransportCredentials.
func (peerProcess) OverrideServerName(string) error { return nil }

// connectedProcess returns the process that has made the connection of a call; 0: not known.
func connectedProcess(ctx context.Context) int {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return 0
	}
	info, _ := p.AuthInfo.(processInfo)
	return info.pid
}
