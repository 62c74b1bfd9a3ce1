package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/preflight"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// exitUnchecked is the exit code if nothing could be checked, the same as in preflight.Report.ExitCode.
	exitUnchecked = 2
	// discoverTimeout is how long drivers are looked for that the configuration does not list.
	discoverTimeout = 15 * time.Second
)

const preflightHelp = `Check, from where the hub runs, whether it can serve each driver. Nothing is changed: no lease is taken, and no volume is
attached or detached. The calls that attach and detach are not tried: a driver that hangs in them passes.

Run it in the Pod of the hub, or as the Job of deploy/components/preflight:

  kubectl -n csi-attach-hub exec deploy/csi-attach-hub -- /csi-attach-hub preflight

Elsewhere it checks with the network of that machine and with the rights of your kubeconfig, not with those of the hub.

Checked for each driver: DNS, connection, certificates of both sides, name, Probe, capabilities, lease and its holder,
rights on the lease, rights on the Secrets that its volumes name, and node IDs. A check is ok, failed, a warning, or skipped
because an earlier check failed. Drivers that the configuration discovers are checked too.

With --socket, only the driver on that socket is asked for its name and capabilities. This needs no configuration and no cluster.

Exit codes:
  0  nothing failed; there may be warnings
  1  a check failed
  2  nothing was checked: the command line or the configuration has a mistake, or there is no driver`

// preflightFlags are the flags of the subcommand preflight.
type preflightFlags struct {
	config    string
	client    clientFlags // access to the Kubernetes API
	namespace string
	socket    string
	drivers   []string
	output    string
	timeout   time.Duration
	set       *pflag.FlagSet // knows which flags were given
}

func newPreflightCommand() *cobra.Command {
	var f preflightFlags
	c := newCommand("preflight", "Check from where the hub runs whether it can serve each driver", func(c *cobra.Command, _ []string) error {
		return unchecked(f.run(c))
	})
	c.Long = preflightHelp
	c.Args = func(c *cobra.Command, args []string) error { return unchecked(noWords(c, args)) }
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unchecked(err) })
	f.set = c.Flags()
	f.set.StringVar(&f.config, "config", defaultConfig, "`file` with the drivers, or a manifest with the ConfigMap that holds it; - for stdin")
	f.client.addAccess(f.set, "")
	f.set.StringVar(&f.namespace, "leader-election-namespace", "", "`namespace` of the leases, as that of the hub; without it $POD_NAMESPACE, then the namespace of the Pod, then \"default\"")
	f.set.StringVar(&f.socket, "socket", "", "`endpoint` of a driver, unix:///path/to/csi.sock: ask only this driver for its name and capabilities")
	f.set.StringArrayVar(&f.drivers, "driver", nil, "`name` of a driver to check, may be repeated; without it, all drivers")
	f.set.StringVarP(&f.output, "output", "o", "table", "output `format`, table or json")
	f.set.DurationVar(&f.timeout, "timeout", time.Minute, "time limit for all checks together")
	return c
}

// unchecked gives an error the exit code exitUnchecked, unless it has an exit code.
func unchecked(err error) error {
	if _, has := errors.AsType[exitError](err); err == nil || has {
		return err
	}
	return exitError{exitUnchecked, err}
}

func (f preflightFlags) run(c *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	ctx, out := c.Context(), c.OutOrStdout()
	limited, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	// What the hub logs about discovery is in the notes.
	report, err := f.report(klog.NewContext(limited, logr.Discard()), c.InOrStdin())
	if ctx.Err() != nil { // what is not answered has not failed
		return errors.New("interrupted before all checks had ended")
	}
	if err != nil {
		return err
	}
	if f.output == "json" {
		err = printJSON(out, report)
	} else {
		_, err = io.WriteString(out, asCalled(c, report.Text()))
	}
	if code := report.ExitCode(); err == nil && code != 0 {
		return exitError{code: code}
	}
	return err
}

func (f preflightFlags) check() error {
	problems := []error{oneOf("output", f.output, "table", "json")}
	if f.timeout <= 0 {
		problems = append(problems, errors.New("--timeout must be positive"))
	}
	for _, other := range []string{"config", "driver", "kubeconfig", "context", "leader-election-namespace"} {
		problems = append(problems, excluded(f.set.Changed("socket") && f.set.Changed(other), "--socket", "--"+other))
	}
	return errors.Join(problems...)
}

func (f preflightFlags) report(ctx context.Context, in io.Reader) (preflight.Report, error) {
	if f.set.Changed("socket") {
		endpoint, err := socketEndpoint("--socket", f.socket)
		if err != nil {
			return preflight.Report{}, err
		}
		return preflight.AskSocket(ctx, endpoint), nil
	}
	// The leases' flags have the rules of the hub.
	leases, err := (&leaseFlags{values: leaseSettings{Namespace: f.namespace}}).settings(f.set.Changed, false)
	if err != nil {
		return preflight.Report{}, err
	}
	config, err := f.parse(in)
	if err != nil {
		return preflight.Report{}, err
	}
	access, err := f.client.kube()
	if err != nil {
		return preflight.Report{}, err
	}
	kube, err := newKubeClient(access)
	if err != nil {
		return preflight.Report{}, err
	}
	o := preflight.Options{Kube: kube, Namespace: leases.Namespace, Discovery: config.Discovery().CSIDrivers.Enabled}
	for _, w := range config.Warnings() {
		o.Warnings = append(o.Warnings, w.String())
	}
	snapshot := config.Drivers()
	if d := config.Discovery(); d.CSIDrivers.Enabled || len(d.Sockets) > 0 {
		snapshot, o.Notes = f.discover(ctx, config, kube)
	}
	if o.Drivers, err = f.selected(snapshot); err != nil {
		return preflight.Report{}, err
	}
	if len(o.Drivers) == 0 {
		o.Notes = append(o.Notes, "No driver was checked: the configuration lists none, and none was discovered.")
	}
	return preflight.Run(ctx, o), nil
}

// parse reads the configuration.
func (f preflightFlags) parse(in io.Reader) (*registry.Config, error) {
	var configs []*registry.Config
	var err error
	if f.config == "-" {
		configs, err = registry.ParseManifestReader("stdin", in)
	} else {
		configs, err = registry.ParseManifestFile(f.config)
	}
	if _, missing := os.Stat(f.config); errors.Is(missing, fs.ErrNotExist) && f.config == defaultConfig {
		return nil, fmt.Errorf("%w, run this in the Pod of the hub, or name another file with --config", err)
	}
	if err != nil {
		return nil, err
	}
	if len(configs) > 1 {
		return nil, fmt.Errorf("--config %s has %d configurations: give a manifest with one", f.config, len(configs))
	}
	return configs[0], nil
}

// discover returns the drivers that a hub with this configuration would serve, and notes about the others. It starts the
// discovery of the hub, and blocks until that has looked everywhere.
func (f preflightFlags) discover(ctx context.Context, config *registry.Config, kube *kubeClient) (registry.Snapshot, []string) {
	r, err := newRegistry(fixedSource{f.config, config}, kube)
	if err != nil {
		return config.Drivers(), []string{"Only listed drivers were checked: " + err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // it ends with ctx
	}()
	defer func() { cancel(); <-ended }()
	select {
	case snapshot := <-r.Updates():
		var notes []string
		for _, c := range r.Conflicts() {
			notes = append(notes, fmt.Sprintf("Found at %s and not served: %s: %s", c.Loser, c.Driver, c.Reason))
		}
		served := maps.Clone(snapshot)
		maps.DeleteFunc(served, func(_ string, d registry.Driver) bool { return d.WindDown }) // no volume of them needs an attach
		return served, notes
	case <-ctx.Done():
		return config.Drivers(), []string{fmt.Sprintf("Only listed drivers were checked: discovery has not ended after %s.", discoverTimeout)}
	}
}

// selected returns the drivers of --driver, by name, all without it.
func (f preflightFlags) selected(all registry.Snapshot) ([]registry.Driver, error) {
	names := slices.Sorted(maps.Keys(all))
	var drivers []registry.Driver
	var problems []error
	for _, name := range f.drivers {
		if _, there := all[name]; there {
			continue
		}
		hint := "it has " + strings.Join(names, ", ")
		if near, found := registry.Nearest(name, names); found {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		problems = append(problems, fmt.Errorf("--driver %q is not in the configuration; %s", name, hint))
	}
	for _, name := range names {
		if len(f.drivers) == 0 || slices.Contains(f.drivers, name) {
			drivers = append(drivers, all[name])
		}
	}
	return drivers, errors.Join(problems...)
}

// fixedSource is the registry.ConfigSource of a configuration that was read once.
type fixedSource struct {
	name   string
	config *registry.Config
}

// Name implements registry.ConfigSource.
func (s fixedSource) Name() string { return s.name }

// Config implements registry.ConfigSource.
func (s fixedSource) Config() *registry.Config { return s.config }

// Run implements registry.ConfigSource. The configuration does not change.
func (s fixedSource) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}
