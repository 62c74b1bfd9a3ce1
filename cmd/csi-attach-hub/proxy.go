package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsproxy"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// proxyFlags are the flags of the command proxy.
type proxyFlags struct {
	listen  string
	health  string
	target  string
	options tlsproxy.Options
	logging *logsapi.LoggingConfiguration
}

func newProxyCommand() *cobra.Command {
	f := proxyFlags{logging: logsapi.NewLoggingConfiguration()}
	c := newCommand("proxy", "Forward calls over mutual TLS to a driver that only listens on a unix socket", func(c *cobra.Command, _ []string) error {
		return runProxy(c.Context(), f)
	})
	c.Args = cobra.NoArgs
	flags, o := c.Flags(), &f.options
	flags.StringVar(&f.listen, "listen", ":9443", "`address` to listen on")
	flags.StringVar(&f.health, "health-listen", "", "`address` of /healthz, and of /readyz, which is 200 while the driver answers Probe with ready; plain HTTP for the kubelet; empty for none")
	flags.StringVar(&f.target, "target", "unix:///csi/csi.sock", "`endpoint` of the driver, a unix socket")
	flags.StringVar(&o.Files.Cert, "tls-cert", "", "`file` with the certificate for clients; this file and the next two are read again when they change")
	flags.StringVar(&o.Files.Key, "tls-key", "", "`file` with the key of --tls-cert")
	flags.StringVar(&o.Files.CA, "client-ca", "", "`file` with the authorities that sign the certificates of clients")
	flags.StringArrayVar(&o.AllowedSANs, "allow-san", nil, "domain `name` or URI that the certificate of a client must have, may be repeated to allow several")
	flags.IntVar(&o.MaxConnections, "max-connections", 100, "number of clients that can be connected at once")
	flags.DurationVar(&o.IdleTimeout, "idle-timeout", time.Hour, "time without data after which a connection is closed; must be above the longest call")
	flags.DurationVar(&o.HandshakeTimeout, "handshake-timeout", 10*time.Second, "time limit for the TLS handshake of a client")
	flags.DurationVar(&o.ProbeTimeout, "probe-timeout", 10*time.Second, "time limit for a Probe of the driver, for /readyz; that of the hub is 10s")
	flags.DurationVar(&o.Grace, "shutdown-grace", 30*time.Second, "time limit for calls in flight to end after SIGTERM")
	logsapi.AddFlags(f.logging, flags)
	for _, required := range []string{"tls-cert", "tls-key", "client-ca", "allow-san"} {
		if err := c.MarkFlagRequired(required); err != nil {
			panic(err) // only for a flag that was not added above
		}
	}
	return c
}

// runProxy runs the proxy until ctx ends, and blocks until it has drained.
func runProxy(ctx context.Context, f proxyFlags) error {
	proxy, err := f.proxy()
	if err != nil {
		return err
	}
	listener, err := listen(ctx, "--listen", f.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	var health net.Listener
	if f.health != "" {
		if health, err = listen(ctx, "--health-listen", f.health); err != nil {
			return err
		}
		defer health.Close()
	}
	if err := logsapi.ValidateAndApply(f.logging, nil); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	defer logs.FlushLogs()
	logger := klog.FromContext(ctx)
	logger.Info("Listening", "version", version, "address", listener.Addr(), "health", f.health, "target", f.target, "allowedSANs", f.options.AllowedSANs)
	servers, ctx := errgroup.WithContext(ctx)
	servers.Go(func() error { return proxy.Serve(ctx, listener) })
	if health != nil {
		servers.Go(func() error { return proxy.ServeHealth(ctx, health) })
	}
	if err := servers.Wait(); err != nil {
		return err
	}
	logger.Info("Stopped")
	return nil
}

func (f proxyFlags) proxy() (*tlsproxy.Proxy, error) {
	target, err := registry.ParseEndpoint(f.target)
	if err == nil && target.Network() != "unix" {
		err = errors.New("must be a unix socket: write unix:///path/to/csi.sock")
	}
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	f.options.Target = target.Address()
	return tlsproxy.New(f.options)
}

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return listener, nil
}
