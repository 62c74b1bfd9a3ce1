package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// httpFlags say where metrics, health and the status page are served.
type httpFlags struct {
	endpoint       string
	metricsAddress string
	metricsAddr    string
	healthAddr     string
	metricsPath    string
	tlsCert        string
	tlsKey         string
	authorization  bool
	profiling      bool
}

// httpSettings is what they say.
type httpSettings struct {
	Addresses   []string // host:port, each different; all is served on each of them; none: off
	MetricsPath string
	TLSCert     string // file; "" without TLS, or with Authorization for a certificate that is made
	TLSKey      string // file
	Authorized  bool   // all but the probes is for those whom the cluster allows, but on loopback addresses
	Profiling   bool   // serve /debug/pprof
}

func (f *httpFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.endpoint, "http-endpoint", ":8080",
		"`address` for metrics, health and the status page, \"\" for none; with --csi-address there is none by default, as with csi-attacher")
	set.StringVar(&f.metricsAddress, "metrics-address", "", "the older name of --http-endpoint, as csi-attacher's (`address`)")
	set.StringVar(&f.metricsAddr, "metrics-addr", "", "another name of --http-endpoint (`address`)")
	set.StringVar(&f.healthAddr, "health-addr", "", "one more `address` to serve all of that on")
	set.StringVar(&f.metricsPath, "metrics-path", "/metrics", "`path` of the metrics")
	set.StringVar(&f.tlsCert, "http-tls-cert", "", "`file` with the certificate for these addresses, loopback addresses excepted; it may be replaced at any time")
	set.StringVar(&f.tlsKey, "http-tls-key", "", "`file` with its key")
	set.BoolVar(&f.authorization, "http-authorization", false,
		"show all but the probes only to those who have a token of the cluster and the right to get the nonResourceURL /metrics or /attach-hub/...; with TLS, self-signed without --http-tls-cert; loopback addresses are for everybody, without TLS")
	set.BoolVar(&f.profiling, "profiling", false, "serve /debug/pprof too")
}

// settings checks the flags. Its error has every mistake.
func (f *httpFlags) settings(given given, dropIn bool) (httpSettings, error) {
	s := httpSettings{MetricsPath: f.metricsPath, TLSCert: f.tlsCert, TLSKey: f.tlsKey, Authorized: f.authorization, Profiling: f.profiling}
	problems := []error{given.atMostOne("http-endpoint", "metrics-address", "metrics-addr")}
	if err := status.CheckMetricsPath(f.metricsPath); err != nil {
		problems = append(problems, fmt.Errorf("--metrics-path: %w", err))
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		problems = append(problems, errors.New("--http-tls-cert and --http-tls-key go together: one of them is missing"))
	}
	endpoint := f.endpoint
	if dropIn && !given("http-endpoint") {
		endpoint = ""
	}
	addresses := []struct{ flag, address string }{{"http-endpoint", endpoint}, {"health-addr", f.healthAddr}}
	switch {
	case given("metrics-address"):
		addresses[0].flag, addresses[0].address = "metrics-address", f.metricsAddress
	case given("metrics-addr"):
		addresses[0].flag, addresses[0].address = "metrics-addr", f.metricsAddr
	}
	for _, a := range addresses {
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

// checkListenAddress says what is wrong with an address to listen on.
func checkListenAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is no address: write one like :8080 or 127.0.0.1:8080", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port: write a number from 0 to 65535", port)
	}
	return nil
}
