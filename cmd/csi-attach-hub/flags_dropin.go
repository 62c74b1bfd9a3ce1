package main

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// dropInFlags are the flags that make the hub replace one csi-attacher.
type dropInFlags struct {
	csiAddress string
}

func (f *dropInFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.csiAddress, "csi-address", "",
		"`socket` of the one driver to serve, in place of its csi-attacher and without --config")
}

// endpoint returns the endpoint of the one driver, "" if --csi-address was not given.
func (f *dropInFlags) endpoint(given given) (registry.Endpoint, error) {
	if !given("csi-address") {
		return "", nil
	}
	return socketEndpoint("--csi-address", f.csiAddress)
}

// socketEndpoint returns the endpoint of a socket that a flag names by its path or as unix:///path.
func socketEndpoint(flag, socket string) (registry.Endpoint, error) {
	if socket == "" {
		return "", fmt.Errorf("%s is empty: write the path of the driver's socket", flag)
	}
	if strings.HasPrefix(socket, "/") {
		socket = "unix://" + socket
	}
	// Other spellings of a path are allowed here, because there is only one driver.
	if absolute, isSocket := strings.CutPrefix(socket, "unix:///"); isSocket {
		socket = "unix://" + path.Clean("/"+absolute)
	}
	endpoint, err := registry.ParseEndpoint(socket)
	if err == nil && endpoint.Network() != "unix" {
		err = errors.New("must be a unix socket: write its path, or use drivers.yaml for other endpoints")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return endpoint, nil
}
