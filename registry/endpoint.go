package registry

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
)

// maxSocketPath is what fits into sun_path of Linux, less the NUL at its end.
const maxSocketPath = 107

const unixScheme = "unix://"

// Endpoint is where the controller of a driver listens: "unix:///abs/path", made
// by ParseEndpoint. Equal endpoints are equal strings.
type Endpoint string

// ParseEndpoint checks an endpoint as a person writes it. Its error says what to
// write instead. There is one way to write each endpoint, so that two that are
// the same cannot look different: a path with "..", "//" or a '/' at its end is
// an error and not cleaned.
func ParseEndpoint(s string) (Endpoint, error) {
	socket, ok := strings.CutPrefix(s, unixScheme)
	if !ok {
		return "", fmt.Errorf("%s is no unix socket: %s", quote(s), socketHint(s))
	}
	if err := checkSocketPath(socket); err != nil {
		return "", fmt.Errorf("%s: %w", quote(s), err)
	}
	return Endpoint(s), nil
}

// socketHint says what to write instead of an endpoint without "unix://".
func socketHint(s string) string {
	const write = "write unix:///path/to/csi.sock"
	if strings.HasPrefix(s, "tcp://") {
		return "tcp:// is not supported by this version: " + write
	}
	socket := strings.TrimPrefix(s, "unix:")
	if checkSocketPath(socket) == nil {
		return "write " + unixScheme + socket
	}
	return write
}

func checkSocketPath(socket string) error {
	if !strings.HasPrefix(socket, "/") {
		return errors.New("the path of the socket must be absolute: write unix:///path/to/csi.sock, with three slashes")
	}
	if strings.ContainsFunc(socket, unicode.IsControl) {
		return errors.New("the path of the socket contains a control character: remove it")
	}
	if len(socket) > maxSocketPath {
		return fmt.Errorf("the path of the socket has %d bytes, a socket's may have %d at most: mount it at a shorter path", len(socket), maxSocketPath)
	}
	if clean := path.Clean(socket); clean == "/" {
		return errors.New("the path names no socket: write unix:///path/to/csi.sock")
	} else if clean != socket {
		return fmt.Errorf("the path of the socket must have no \"/./\", \"/../\" or \"//\" in it and no \"/\" at its end: write %s%s", unixScheme, clean)
	}
	return nil
}

// Network is the network to dial, as package net calls it.
func (e Endpoint) Network() string {
	network, _, _ := strings.Cut(string(e), "://")
	return network
}

// Address is the address to dial on that network: the path of the socket.
func (e Endpoint) Address() string {
	_, address, _ := strings.Cut(string(e), "://")
	return address
}
