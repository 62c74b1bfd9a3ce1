package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// httpFlags are the flags of metrics, probes, API and status page.
type httpFlags struct {
	endpoint     string // of --http-endpoint or one of its other names
	healthAddr   string
	metricsPath  string
	allowedHosts []string
	profiling    bool
}

// endpointFlags are the names of --http-endpoint; csi-attacher has the first two.
var endpointFlags = []string{"http-endpoint", "metrics-address", "metrics-addr"}

// httpSettings are the checked values of httpFlags.
type httpSettings struct {
	Addresses   []string // host:port, each different; everything is served on each; empty for no HTTP
	MetricsPath string
	// AllowedHosts are further names in the Host of requests to loopback addresses.
	AllowedHosts []string
	Profiling    bool // serve /debug/pprof
}

func (f *httpFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.endpoint, endpointFlags[0], ":8080",
		"`address` for metrics and probes, and on loopback connections API and status page, \"\" for none; with --csi-address none by default, as csi-attacher")
	for _, name := range endpointFlags[1:] {
		set.Var(set.Lookup(endpointFlags[0]).Value, name, "alias of --http-endpoint (`address`)")
		set.Lookup(name).DefValue = ""
	}
	set.StringVar(&f.healthAddr, "health-addr", "", "second `address` with the same content")
	set.StringVar(&f.metricsPath, "metrics-path", "/metrics", "`path` of the metrics")
	set.StringSliceVar(&f.allowedHosts, "http-allowed-hosts", nil,
		"`names` in the Host header of requests to loopback addresses, with commas between them, besides localhost, IP addresses and csi-attach-hub.NAMESPACE.svc")
	set.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof too, on loopback connections")
}

var validHost = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// settings checks the flags. Its error has every mistake.
func (f *httpFlags) settings(given given, dropIn bool) (httpSettings, error) {
	s := httpSettings{MetricsPath: f.metricsPath, AllowedHosts: f.allowedHosts, Profiling: f.profiling}
	problems := []error{given.atMostOne(endpointFlags...)}
	if err := status.CheckMetricsPath(f.metricsPath); err != nil {
		problems = append(problems, fmt.Errorf("--metrics-path: %w", err))
	}
	for _, name := range f.allowedHosts {
		if !validHost.MatchString(name) {
			problems = append(problems, fmt.Errorf("--http-allowed-hosts: %q is not a host name: write it without port, like hub.example.com", name))
		}
	}
	flag, endpoint := endpointFlags[0], f.endpoint
	if i := slices.IndexFunc(endpointFlags, given); i >= 0 {
		flag = endpointFlags[i]
	} else if dropIn {
		endpoint = ""
	}
	for _, a := range []struct{ flag, address string }{{flag, endpoint}, {"health-addr", f.healthAddr}} {
		if a.address == "" || slices.Contains(s.Addresses, a.address) {
			continue
		}
		if err := checkListenAddress(a.address); err != nil {
			problems = append(problems, fmt.Errorf("--%s: %w", a.flag, err))
		}
		s.Addresses = append(s.Addresses, a.address)
	}
	return s, errors.Join(problems...)
}

// checkListenAddress returns what is wrong with an address to listen on.
func checkListenAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not an address: write host:port like :8080 or 127.0.0.1:8080", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port: write a number from 0 to 65535", port)
	}
	return nil
}
