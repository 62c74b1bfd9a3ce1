package main

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const defaultConfig = "/etc/csi-attach-hub"

// hubSettings are what the flags of the hub say.
type hubSettings struct {
	config        string            // path of the folder or file of drivers; "" if csiAddress is set
	csiAddress    registry.Endpoint // of the one driver to serve; "" if config is set
	kubeconfig    string            // path; "" in a Pod
	shutdownGrace time.Duration
	driver        registry.Settings // of drivers for which no file has any
	leases        leaseSettings
	http          httpSettings
	logging       *logsapi.LoggingConfiguration
	warnings      []string // flags that were given and have no effect
}

// hubFlags are the values of the hub's flags, unchecked.
type hubFlags struct {
	hubSettings
	socket      string // of --csi-address
	endpoint    string // of --http-endpoint or one of its other names
	healthAddr  string
	leaseLabels string
	set         *pflag.FlagSet        // knows which flags were given
	groups      cliflag.NamedFlagSets // the flags as --help shows them
}

// newHubFlags adds the flags to a set.
func newHubFlags(set *pflag.FlagSet) *hubFlags {
	f := &hubFlags{set: set}
	drivers := f.groups.FlagSet("Flags for drivers")
	drivers.StringVar(&f.config, "config", defaultConfig, "`folder` of files with the drivers to serve, or one such file")
	drivers.DurationVar(&f.shutdownGrace, "shutdown-grace", 30*time.Second, "time limit for calls in flight to end after SIGTERM")
	drivers.StringVar(&f.socket, "csi-address", "", "`socket` of the one driver to serve, in place of its csi-attacher and without --config")
	f.groups.FlagSet("Flags for the Kubernetes API").StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` for the Kubernetes API; without it, the service account of the Pod")
	f.addLeases(f.groups.FlagSet("Flags for leases"))
	f.addHTTP(f.groups.FlagSet("Flags for HTTP"))
	f.logging = logsapi.NewLoggingConfiguration()
	logging := f.groups.FlagSet("Flags for logging")
	logsapi.AddFlags(f.logging, logging)
	logging.VisitAll(func(flag *pflag.Flag) { flag.Hidden = strings.HasPrefix(flag.Usage, "[Alpha]") })
	sidecar := f.groups.FlagSet("Flags of csi-attacher; drivers.yaml takes precedence")
	addDriverFlags(sidecar, &f.driver)
	addIgnored(sidecar)
	for _, name := range f.groups.Order {
		set.AddFlagSet(f.groups.FlagSets[name])
	}
	return f
}

// settings checks the flags. Its error has one line for each mistake.
func (f *hubFlags) settings() (hubSettings, error) {
	s := f.hubSettings
	dropIn := f.set.Changed("csi-address")
	var problems [6]error
	if f.shutdownGrace < 0 {
		problems[0] = errors.New("--shutdown-grace must not be negative")
	}
	if dropIn {
		s.config = ""
		s.csiAddress, problems[1] = socketEndpoint(f.socket)
		if f.set.Changed("config") {
			problems[2] = errors.New("--csi-address and --config cannot both be given: serve the driver on a socket, or the drivers of a file")
		}
	}
	s.leases, problems[3] = f.leaseSettings(dropIn)
	s.driver, problems[4] = f.driverSettings(dropIn)
	s.driver.Lease.Namespace = s.leases.Namespace
	s.http, problems[5] = f.httpSettings(dropIn)
	if f.set.Changed("kube-api-burst") && s.driver.KubeAPI.QPS == 0 {
		s.warnings = []string{"--kube-api-burst has no effect without --kube-api-qps: writes are not limited"}
	}
	for _, i := range ignored {
		if f.set.Changed(i.flag) {
			s.warnings = append(s.warnings, fmt.Sprintf("--%s has no effect: %s", i.flag, i.why))
		}
	}
	s.warnings = append(s.warnings, limitVerbosity(f.logging)...)
	return s, errors.Join(problems[:]...)
}

// socketEndpoint returns the endpoint of the socket that --csi-address names by its path or as unix:///path.
func socketEndpoint(socket string) (registry.Endpoint, error) {
	if socket == "" {
		return "", errors.New("--csi-address is empty: write the path of the driver's socket")
	}
	// Other spellings of a path are allowed here, because there is only one driver.
	if file := strings.TrimPrefix(socket, "unix://"); strings.HasPrefix(file, "/") {
		socket = "unix://" + path.Clean(file)
	}
	endpoint, err := registry.ParseEndpoint(socket)
	if err == nil && endpoint.Network() != "unix" {
		err = errors.New("must be a unix socket: write its path, or use drivers.yaml for other endpoints")
	}
	if err != nil {
		return "", fmt.Errorf("--csi-address: %w", err)
	}
	return endpoint, nil
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

// ignored are the flags of csi-attacher that have no effect here, each with the reason.
var ignored = []struct{ flag, why string }{
	{"resync", "changes are noticed at once, and --reconcile-sync looks for drift"},
	{"max-grpc-log-length", "answers of drivers are not logged"},
	{"automaxprocs", "Go follows the CPU limit of the container automatically"},
	{"feature-gates", "the features of csi-attacher's gates are always on"},
}

// addIgnored adds the ignored flags, so that csi-attacher's manifests work. Their values are
// parsed and dropped.
func addIgnored(set *pflag.FlagSet) {
	set.Duration("resync", 0, "")
	set.Int("max-grpc-log-length", 0, "")
	set.Bool("automaxprocs", false, "")
	set.Var(cliflag.NewMapStringBool(&map[string]bool{}), "feature-gates", "")
	for _, i := range ignored {
		set.Lookup(i.flag).Usage = "no effect, accepted for manifests of csi-attacher: " + i.why
	}
}

// maxVerbosity is the highest verbosity of the log. From 8 on, client-go logs the bodies of requests and answers: Secrets,
// publish contexts. The hub logs nothing above 5.
const maxVerbosity = 7

// limitVerbosity lowers the verbosities of the whole program and of single files to maxVerbosity. It returns a warning
// for each flag with a higher one.
func limitVerbosity(c *logsapi.LoggingConfiguration) (warnings []string) {
	limit := func(flag string, v *logsapi.VerbosityLevel) {
		if *v > maxVerbosity {
			warnings = append(warnings, fmt.Sprintf("%s=%d is taken as %d: above it, requests to the Kubernetes API would be logged with the Secrets and tokens in them", flag, *v, maxVerbosity))
			*v = maxVerbosity
		}
	}
	limit("--v", &c.Verbosity)
	for i := range c.VModule {
		limit("--vmodule "+c.VModule[i].FilePattern, &c.VModule[i].Verbosity)
	}
	return warnings
}
