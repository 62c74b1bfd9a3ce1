package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// newRegistry returns what says which drivers to serve.
func newRegistry(file *registry.File, kube kubernetes.Interface) (*registry.Registry, error) {
	return registry.New(registry.Options{
		File:       file,
		CSIDrivers: func() registry.Source { return registry.NewCSIDriverSource(kube) },
		Sockets: func(glob string) (registry.Source, error) {
			return registry.NewSocketSource(registry.SocketOptions{Glob: glob, Ask: driverName})
		},
	})
}

// runRegistry runs the registry while do runs, and returns what do did. SIGHUP
// has the file read again meanwhile.
func runRegistry(ctx context.Context, r *registry.Registry, file *registry.File, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		for {
			select {
			case <-hangups:
				file.Reload()
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
	conn, err := grpc.NewClient(endpoint.Network()+":"+endpoint.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithDisableServiceConfig())
	if err != nil {
		return "", fmt.Errorf("dial %s: %w", endpoint, err)
	}
	defer conn.Close()
	return rpc.GetDriverName(ctx, conn)
}
