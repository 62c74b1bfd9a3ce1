package main

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// endpointFlags are the names of --http-endpoint; csi-attacher has the first two.
var endpointFlags = []string{"http-endpoint", "metrics-address", "metrics-addr"}

// httpSettings are what the flags of metrics, probes, API and status page say.
type httpSettings struct {
	Addresses []string // host:port, each different; everything is served on each; empty for no HTTP
	status.Options
}

func (f *hubFlags) addHTTP(set *pflag.FlagSet) {
	set.StringVar(&f.endpoint, endpointFlags[0], ":8080",
		"`address` for metrics and probes, and on loopback connections API and status page, \"\" for none; with --csi-address none by default, as csi-attacher")
	for _, name := range endpointFlags[1:] {
		set.Var(set.Lookup(endpointFlags[0]).Value, name, "alias of --http-endpoint (`address`)")
		set.Lookup(name).DefValue = ""
	}
	set.StringVar(&f.healthAddr, "health-addr", "", "second `address` with the same content")
	set.StringVar(&f.http.MetricsPath, "metrics-path", "/metrics", "`path` of the metrics")
	set.StringSliceVar(&f.http.AllowedHosts, "http-allowed-hosts", nil,
		"`names` in the Host header of requests to loopback addresses, with commas between them, besides localhost, IP addresses and csi-attach-hub.NAMESPACE.svc")
	set.BoolVar(&f.http.Profiling, "profiling", false, "serve /debug/pprof too, on loopback connections")
}

var validHost = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// httpSettings checks the flags. Its error has every mistake.
func (f *hubFlags) httpSettings(dropIn bool) (httpSettings, error) {
	s := f.http
	var problems []error
	endpoint := struct{ flag, address string }{endpointFlags[0], f.endpoint}
	if given := slices.DeleteFunc(slices.Clone(endpointFlags), func(flag string) bool { return !f.set.Changed(flag) }); len(given) > 1 {
		problems = append(problems, fmt.Errorf("--%s mean the same: give one of them", strings.Join(given, " and --")))
	} else if len(given) == 1 {
		endpoint.flag = given[0]
	} else if dropIn {
		endpoint.address = ""
	}
	if err := status.CheckMetricsPath(s.MetricsPath); err != nil {
		problems = append(problems, fmt.Errorf("--metrics-path: %w", err))
	}
	for _, name := range s.AllowedHosts {
		if !validHost.MatchString(name) {
			problems = append(problems, fmt.Errorf("--http-allowed-hosts: %q is not a host name: write it without port, like hub.example.com", name))
		}
	}
	for _, a := range []struct{ flag, address string }{endpoint, {"health-addr", f.healthAddr}} {
		if a.address == "" || slices.Contains(s.Addresses, a.address) {
			continue
		}
		s.Addresses = append(s.Addresses, a.address)
		if _, port, err := net.SplitHostPort(a.address); err != nil {
			problems = append(problems, fmt.Errorf("--%s: %q is not an address: write host:port like :8080 or 127.0.0.1:8080", a.flag, a.address))
		} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			problems = append(problems, fmt.Errorf("--%s: %q is not a port: write a number from 0 to 65535", a.flag, port))
		}
	}
	return s, errors.Join(problems...)
}
