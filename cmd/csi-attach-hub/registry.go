package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// source returns what says which drivers there are, and a function that has it look
// again. It contacts nobody.
func (s hubSettings) source() (source registry.ConfigSource, reload func(), err error) {
	if s.csiAddress != "" {
		single, err := registry.NewSingle(registry.SingleOptions{
			Endpoint: s.csiAddress, Settings: s.driver, Ask: driverName, Source: "--csi-address " + s.csiAddress.Address(),
		})
		return single, func() {}, err
	}
	file, err := registry.NewFile(registry.FileOptions{Path: s.config, Defaults: s.driver})
	if _, missing := os.Stat(s.config); errors.Is(missing, fs.ErrNotExist) && s.config == defaultConfig {
		return nil, nil, fmt.Errorf("%w; or name it with --config; or give --csi-address to serve one driver in the place of its csi-attacher", err)
	}
	if err != nil {
		return nil, nil, err
	}
	return file, file.Reload, nil
}

// newRegistry returns what says which drivers to serve.
func newRegistry(source registry.ConfigSource, kube *kubeClient) (*registry.Registry, error) {
	return registry.New(registry.Options{
		File:       source,
		CSIDrivers: func() registry.Source { return registry.NewCSIDriverSource(kube.StorageV1()) },
		Sockets: func(glob string) (registry.Source, error) {
			return registry.NewSocketSource(registry.SocketOptions{Glob: glob, Ask: driverName})
		},
	})
}

// catchHangups returns the SIGHUPs that come until stop is called: from then on one ends
// the process.
func catchHangups() (hangups chan os.Signal, stop func()) {
	hangups = make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return hangups, func() { signal.Stop(hangups) }
}

// runRegistry runs the registry while do runs, and returns what do did. Each of the
// hangups calls reload meanwhile.
func runRegistry(ctx context.Context, r *registry.Registry, hangups <-chan os.Signal, reload func(), do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		for {
			select {
			case <-hangups:
				reload()
			case <-ctx.Done():
				return
			}
		}
	})
	ended := make(chan error, 1)
	running.Go(func() { ended <- r.Run(ctx) })
	err := do()
	cancel()
	if registryErr := <-ended; err == nil {
		err = registryErr
	}
	return err
}

// driverName asks who listens at an endpoint, over a connection of its own.
func driverName(ctx context.Context, endpoint registry.Endpoint) (string, error) {
	// The address is not for gRPC to parse: a path may have what means something in a URL.
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, endpoint.Network(), endpoint.Address())
	}
	conn, err := grpc.NewClient("passthrough:///driver", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithDisableServiceConfig())
	if err != nil {
		return "", fmt.Errorf("dial %s: %w", endpoint, err)
	}
	defer conn.Close()
	return rpc.GetDriverName(ctx, conn)
}
