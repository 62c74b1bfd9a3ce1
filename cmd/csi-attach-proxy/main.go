// Command csi-attach-proxy gives a CSI driver that listens on a unix socket a TCP port with mutual TLS, for the calls that
// attaching needs. It runs beside the driver; csi-attach-hub is its client. See package proxy.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/proxy"
)

var version = "unknown" // set by the Makefile

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if newCommand().ExecuteContext(ctx) != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o proxy.Options
	var listen, health string
	c := &cobra.Command{Use: "csi-attach-proxy", Short: "Forward calls over mutual TLS to a driver that only listens on a unix socket", Version: version,
		Args: cobra.NoArgs, SilenceUsage: true, RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), o, listen, health) }}
	flags := c.Flags()
	flags.StringVar(&listen, "listen", ":9443", "`address` to listen on")
	flags.StringVar(&health, "health-listen", "", "`address` of /healthz, and of /readyz, which is 200 while the driver answers Probe with ready; plain HTTP for the kubelet; empty for none")
	flags.StringVar(&o.Target, "target", "unix:///csi/csi.sock", "`endpoint` of the driver, a unix socket")
	flags.StringVar(&o.Files.Cert, "tls-cert", "", "`file` with the certificate for clients; this file and the next two are read again when they change")
	flags.StringVar(&o.Files.Key, "tls-key", "", "`file` with the key of --tls-cert")
	flags.StringVar(&o.Files.CA, "client-ca", "", "`file` with the CAs that sign the certificates of clients")
	flags.StringArrayVar(&o.AllowedSANs, "allow-san", nil, "domain `name` or URI that the certificate of a client must have, may be repeated to allow several")
	flags.DurationVar(&o.Grace, "shutdown-grace", 30*time.Second, "time limit for calls in flight to end after SIGTERM")
	for _, required := range []string{"tls-cert", "tls-key", "client-ca", "allow-san"} {
		_ = c.MarkFlagRequired(required) // fails only for a flag that was not added above
	}
	return c
}

// run runs the proxy until ctx ends, and blocks until it has drained.
func run(ctx context.Context, o proxy.Options, listen, health string) error {
	path, isSocket := strings.CutPrefix(o.Target, "unix://")
	if !isSocket {
		return fmt.Errorf("--target: %q is no unix socket: write unix:///path/to/csi.sock", o.Target)
	}
	o.Target = path
	p, err := proxy.New(o)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if health != "" {
		listener, err := net.Listen("tcp", health)
		if err != nil {
			return fmt.Errorf("--health-listen: %w", err)
		}
		go p.ServeHealth(ctx, listener)
	}
	klog.InfoS("Listening", "version", version, "address", listener.Addr(), "health", health, "target", path, "allowedSANs", o.AllowedSANs)
	p.Serve(ctx, listener)
	return nil
}
