package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// stopGrace is how long calls in flight may take to end after SIGTERM.
const stopGrace = time.Second

// newDriverCommand runs a fake CSI driver as a process.
func newDriverCommand() *cobra.Command {
	var f driverFlags
	cmd := &cobra.Command{
		Use:   "driver --name NAME --endpoint unix:///PATH",
		Short: "Run a fake CSI driver until SIGTERM",
		Long: `Run a fake CSI driver, Identity and Controller service, until SIGTERM.

It prints one line when it listens. What it does can be changed while it runs,
through the HTTP API that --control opens: POST /knobs answers what it changed, and
GET /books returns the attachments and calls.`,
		Example: `  testbed driver --name fast.example.com --endpoint unix:///tmp/fast.sock
  testbed driver --name slow.example.com --endpoint unix:///tmp/slow.sock --latency 2s
  testbed driver --name flaky.example.com --endpoint unix:///tmp/flaky.sock --fail-publish 2:Unavailable
  testbed driver --name stuck.example.com --endpoint unix:///tmp/stuck.sock --hang --control 127.0.0.1:7001
  curl --data '{"releaseAll":true}' http://127.0.0.1:7001/knobs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := f.driver()
			if err != nil {
				return err
			}
			return d.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.register(cmd)
	return cmd
}

// driver is a fake CSI driver that is a process.
type driver struct {
	options  fakecsi.Options // the StateFile comes from state
	knobs    fakecsi.Knobs
	endpoint string
	state    string // file of the StateFile; empty: memory only
	control  string // endpoint of the Control; empty: none
}

// run serves until ctx ends, with the state file open if there is one.
func (d *driver) run(ctx context.Context, out io.Writer) error {
	if d.state == "" {
		return d.serve(ctx, out)
	}
	stateFile, err := fakecsi.OpenStateFile(d.state)
	if err != nil {
		return err
	}
	defer stateFile.Close()
	d.options.StateFile = stateFile
	return d.serve(ctx, out)
}

func (d *driver) serve(ctx context.Context, out io.Writer) error {
	backend, err := fakecsi.New(d.options)
	if err != nil {
		return err
	}
	if err := backend.Set(d.knobs); err != nil {
		return err
	}
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: d.endpoint})
	if err != nil {
		return err
	}
	var control net.Listener
	if d.control != "" {
		if control, err = fakecsi.Listen(d.control); err != nil {
			return err
		}
		defer control.Close()
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer stop(ctx, server)
	if _, err := fmt.Fprintln(out, d.greeting(server, control)); err != nil {
		return fmt.Errorf("print the greeting: %w", err)
	}
	if control == nil {
		<-ctx.Done()
		return nil
	}
	return fakecsi.ServeControl(ctx, control, fakecsi.Control(backend))
}

// stop lets calls in flight end, though not for long.
func stop(ctx context.Context, s *fakecsi.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	s.Stop(ctx)
}

func (d *driver) greeting(s *fakecsi.Server, control net.Listener) string {
	line := fmt.Sprintf("driver %s listens on %s", d.options.Name, s.Endpoint())
	if control == nil {
		return line
	}
	if control.Addr().Network() == "unix" {
		return line + ", control on unix://" + control.Addr().String()
	}
	return line + ", control on " + control.Addr().String()
}

// checkControl refuses an address that others than this machine could reach:
// Control has no authentication.
func checkControl(endpoint string) error {
	if endpoint == "" || strings.HasPrefix(endpoint, "unix://") {
		return nil
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	if err != nil {
		return fmt.Errorf("--control %q: %w: write unix:///path or 127.0.0.1:port", endpoint, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return errors.New("--control " + endpoint + ": not a loopback address: write unix:///path or 127.0.0.1:port")
	}
	return nil
}
