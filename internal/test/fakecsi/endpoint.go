package fakecsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// splitEndpoint returns network and address of unix:///path, tcp://host:port or
// host:port.
func splitEndpoint(endpoint string) (network, address string, err error) {
	if path, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		if !filepath.IsAbs(path) {
			return "", "", fmt.Errorf("endpoint %q: the path is not absolute: write unix:///path/to/socket", endpoint)
		}
		return "unix", path, nil
	}
	address = strings.TrimPrefix(endpoint, "tcp://")
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", "", fmt.Errorf("endpoint %q: %w: write unix:///path, tcp://host:port or host:port", endpoint, err)
	}
	return "tcp", address, nil
}

// Listen listens on unix:///path, tcp://host:port or host:port. It replaces the
// file of a socket on which no process listens. A socket in use and a file that is
// no socket are errors.
func Listen(endpoint string) (net.Listener, error) {
	network, address, err := splitEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := removeLeftover(address); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", endpoint, err)
		}
	}
	lis, err := new(net.ListenConfig).Listen(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", endpoint, err)
	}
	return lis, nil
}

func removeLeftover(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket: choose another path", path)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		return errors.Join(fmt.Errorf("%s is in use by another process: stop it or choose another path", path), conn.Close())
	}
	return os.Remove(path)
}
