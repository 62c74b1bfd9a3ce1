package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const defaultConfig = "/etc/csi-attach-hub"

// hubFlags are the values of the hub's flags, unchecked.
type hubFlags struct {
	config        string
	kubeconfig    string
	shutdownGrace time.Duration
	dropIn        dropInFlags
	driver        driverFlags
	leases        leaseFlags
	http          httpFlags
	logging       *logsapi.LoggingConfiguration

	set *pflag.FlagSet // knows which flags were given
}

// hubSettings are the checked values of hubFlags, with defaults filled in.
type hubSettings struct {
	config        string            // path of drivers.yaml; "" if csiAddress is set
	csiAddress    registry.Endpoint // of the one driver to serve; "" if config is set
	kubeconfig    string            // path; "" in a Pod
	shutdownGrace time.Duration
	driver        registry.Settings // of drivers for which drivers.yaml has none
	leases        leaseSettings
	http          httpSettings
	logging       *logsapi.LoggingConfiguration
	warnings      []string // flags that were given and have no effect
}

// newHubFlags adds the flags to a set.
func newHubFlags(set *pflag.FlagSet) *hubFlags {
	f := &hubFlags{logging: logsapi.NewLoggingConfiguration(), set: set}
	set.StringVar(&f.config, "config", defaultConfig, "`folder` of files with the drivers to serve, or one such file")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` for the Kubernetes API; without it, the service account of the Pod")
	set.DurationVar(&f.shutdownGrace, "shutdown-grace", 30*time.Second, "time limit for calls in flight to end after SIGTERM")
	f.dropIn.add(set)
	f.driver.add(set)
	f.leases.add(set)
	f.http.add(set)
	addIgnored(set)
	logsapi.AddFlags(f.logging, set)
	return f
}

// given reports whether a flag was given.
type given func(flag string) bool

// settings checks the flags. Its error has one line for each mistake.
func (f *hubFlags) settings() (hubSettings, error) {
	s := hubSettings{config: f.config, kubeconfig: f.kubeconfig, shutdownGrace: f.shutdownGrace, logging: f.logging}
	given := given(f.set.Changed)
	var problems [6]error
	if f.shutdownGrace < 0 {
		problems[0] = errors.New("--shutdown-grace must not be negative")
	}
	s.csiAddress, problems[1] = f.dropIn.endpoint(given)
	dropIn := given("csi-address")
	if dropIn {
		s.config = ""
	}
	if dropIn && given("config") {
		problems[2] = errors.New("--csi-address and --config cannot both be given: serve the driver on a socket, or the drivers of a file")
	}
	s.leases, problems[3] = f.leases.settings(given, dropIn)
	s.driver, problems[4] = f.driver.settings(given, dropIn)
	s.driver.Lease.Namespace = s.leases.Namespace
	s.http, problems[5] = f.http.settings(given, dropIn)
	s.warnings = slices.Concat(f.driver.warnings(given), ignoredWarnings(given), limitVerbosity(f.logging))
	return s, errors.Join(problems[:]...)
}

// atMostOne returns an error if more than one of the flags was given.
func (g given) atMostOne(flags ...string) error {
	var written []string
	for _, flag := range flags {
		if g(flag) {
			written = append(written, "--"+flag)
		}
	}
	if len(written) > 1 {
		return fmt.Errorf("%s mean the same: give one of them", strings.Join(written, " and "))
	}
	return nil
}

// withTwoDashes turns -name and -name=value into --name and --name=value where name is a
// long flag: csi-attacher takes both, and manifests have both.
func withTwoDashes(args []string, set *pflag.FlagSet) []string {
	out := make([]string, len(args))
	copy(out, args)
	for i, arg := range args {
		if arg == "--" {
			break // no flags follow
		}
		name, isFlag := strings.CutPrefix(arg, "-")
		if name, _, _ = strings.Cut(name, "="); isFlag && len(name) > 1 && set.Lookup(name) != nil {
			out[i] = "-" + arg
		}
	}
	return out
}
