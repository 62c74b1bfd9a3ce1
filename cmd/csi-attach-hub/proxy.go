package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsproxy"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// proxyFlags are the flags of the command proxy.
type proxyFlags struct {
	listen  string
	target  string
	options tlsproxy.Options
	logging *logsapi.LoggingConfiguration
}

func newProxyCommand() *cobra.Command {
	f := proxyFlags{logging: logsapi.NewLoggingConfiguration()}
	c := newCommand("proxy", "Forward mutual TLS to a driver that only listens on a unix socket", func(c *cobra.Command, _ []string) error {
		return runProxy(c.Context(), f)
	})
	c.Args = noWords
	flags, o := c.Flags(), &f.options
	flags.StringVar(&f.listen, "listen", ":9443", "`address` to listen on")
	flags.StringVar(&f.target, "target", "unix:///csi/csi.sock", "`endpoint` of the driver, a unix socket")
	flags.StringVar(&o.Files.Cert, "tls-cert", "", "`file` with the certificate for clients; this file and the next two are read again when they change")
	flags.StringVar(&o.Files.Key, "tls-key", "", "`file` with the key of --tls-cert")
	flags.StringVar(&o.Files.CA, "client-ca", "", "`file` with the authorities that sign the certificates of clients")
	flags.StringArrayVar(&o.AllowedSANs, "allow-san", nil, "domain `name` or URI that the certificate of a client must have, may be repeated to allow several; without it, any name")
	flags.IntVar(&o.MaxConnections, "max-connections", 100, "number of clients that can be connected at once")
	flags.DurationVar(&o.IdleTimeout, "idle-timeout", time.Hour, "time without data after which a connection is closed; must be above the longest call")
	flags.DurationVar(&o.HandshakeTimeout, "handshake-timeout", 10*time.Second, "time limit for the TLS handshake of a client")
	flags.DurationVar(&o.Grace, "shutdown-grace", 30*time.Second, "time limit for calls in flight to end after SIGTERM")
	logsapi.AddFlags(f.logging, flags)
	for _, required := range []string{"tls-cert", "tls-key", "client-ca"} {
		if err := c.MarkFlagRequired(required); err != nil {
			panic(err) // only for a flag that was not added above
		}
	}
	return c
}

// runProxy runs the proxy until ctx ends, and blocks until it has drained.
func runProxy(ctx context.Context, f proxyFlags) error {
	proxy, listener, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := logsapi.ValidateAndApply(f.logging, nil); err != nil {
		return fmt.Errorf("set up logging: %w", err)
	}
	defer logs.FlushLogs()
	logger := klog.FromContext(ctx)
	logger.Info("Listening", "version", version, "address", listener.Addr(), "target", f.target, "allowedSANs", f.options.AllowedSANs)
	if err := proxy.Serve(ctx, listener); err != nil {
		return err
	}
	logger.Info("Stopped")
	return nil
}

// open returns the proxy and its listener.
func (f proxyFlags) open(ctx context.Context) (*tlsproxy.Proxy, net.Listener, error) {
	target, err := registry.ParseEndpoint(f.target)
	if err == nil && target.Network() != "unix" {
		err = errors.New("must be a unix socket: write unix:///path/to/csi.sock")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--target: %w", err)
	}
	f.options.Target = target.Address()
	proxy, err := tlsproxy.New(f.options)
	if err != nil {
		return nil, nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return nil, nil, fmt.Errorf("--listen: %w", err)
	}
	return proxy, listener, nil
}
