package registry

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxSocketPath is what fits into sun_path of Linux, less the NUL at its end.
const maxSocketPath = 107

const (
	unixScheme = "unix://"
	tcpScheme  = "tcp://"
)

// Endpoint is where the controller of a driver listens: "unix:///abs/path" or
// "tcp://host:port", made by ParseEndpoint. Equal endpoints are equal strings.
type Endpoint string

// ParseEndpoint checks an endpoint as a person writes it. Its error says what to
// write instead. There is one way to write each endpoint, so that two that are
// the same cannot look different: a path with "..", "//" or a '/' at its end, a
// host with capitals or a port with leading zeros is an error and not cleaned.
func ParseEndpoint(s string) (Endpoint, error) {
	var err error
	if socket, ok := strings.CutPrefix(s, unixScheme); ok {
		err = checkSocketPath(socket)
	} else if address, ok := strings.CutPrefix(s, tcpScheme); ok {
		err = checkAddress(address)
	} else {
		instead := "unix:///path/to/csi.sock or tcp://host:port"
		if checkSocketPath(s) == nil {
			instead = unixScheme + s
		}
		return "", fmt.Errorf("%s is not an endpoint: write %s", quote(s), instead)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", quote(s), err)
	}
	return Endpoint(s), nil
}

// checkEndpoint is ParseEndpoint without its result.
func checkEndpoint(s string) error {
	_, err := ParseEndpoint(s)
	return err
}

func checkSocketPath(socket string) error {
	if !strings.HasPrefix(socket, "/") {
		return errors.New("the socket path must be absolute: write unix:///path/to/csi.sock, with three slashes")
	}
	if len(socket) > maxSocketPath {
		return fmt.Errorf("the socket path has %d bytes, the limit is %d: mount the socket at a shorter path", len(socket), maxSocketPath)
	}
	if clean := path.Clean(socket); clean != socket || clean == "/" || strings.ContainsFunc(socket, unicode.IsControl) {
		return errors.New("the socket path must not contain \"/./\", \"/../\", \"//\" or a control character, or end with \"/\": write unix:///path/to/csi.sock")
	}
	return nil
}

// checkAddress returns an error for a bad host:port of a TCP endpoint.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be a host and a port: write tcp://host:port, an IPv6 address in brackets like tcp://[fd00::1]:9443")
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return fmt.Errorf("%s is not a port: write a number from 1 to 65535 after the last ':'", quote(port))
	}
	if err := checkHost(host); err != nil {
		return err
	}
	if written := net.JoinHostPort(host, strconv.FormatUint(number, 10)); written != address {
		return fmt.Errorf("must be written as %s%s", tcpScheme, written)
	}
	return nil
}

// checkHost returns an error for what is no host, or not written in the one way that there is for it.
func checkHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" { // zones differ between machines
		if canonical := ip.Unmap().String(); canonical != host {
			return fmt.Errorf("%s must be written as %s", quote(host), canonical)
		}
		return nil
	}
	// Resolvers take 127.1 and 2130706433 for addresses.
	last := host[strings.LastIndexByte(host, '.')+1:]
	if len(validation.IsDNS1123Subdomain(host)) > 0 || strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%s is neither a domain name in small letters nor an IP address: write a host like csi.storage.svc or 10.0.0.1", quote(host))
	}
	return nil
}

// Network is the network to dial, as package net calls it: "unix" or "tcp".
func (e Endpoint) Network() string {
	network, _, _ := strings.Cut(string(e), "://")
	return network
}

// Address is the address to dial on that network: the path of the socket, or
// host:port.
func (e Endpoint) Address() string {
	_, address, _ := strings.Cut(string(e), "://")
	return address
}

// Host is the host of a TCP endpoint, an IPv6 address without its brackets; ""
// for a socket.
func (e Endpoint) Host() string {
	if e.Network() != "tcp" {
		return ""
	}
	host, _, _ := net.SplitHostPort(e.Address())
	return host
}

// IsLocal reports whether what is sent to the endpoint stays on the machine: the endpoint is
// a socket, localhost or a loopback address.
func (e Endpoint) IsLocal() bool {
	if e.Network() == "unix" || e.Host() == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(e.Host())
	return err == nil && ip.IsLoopback()
}

// EndpointPattern allows endpoints: an endpoint in which '*' matches anything
// within one part. A part of a path ends at '/', one of a TCP address at '.' and at
// ':', so that tcp://*.storage.svc:9443 allows one name in front of the dot. "/*" at
// the end of a path allows all that is below, however deep.
//
// Endpoints have one spelling each (ParseEndpoint), so that none gets past a
// pattern with "..".
type EndpointPattern string

// check returns an error for a bad pattern, which says what to write instead.
func (p EndpointPattern) check() error {
	// What the pattern allows must be something that ParseEndpoint takes.
	if err := checkEndpoint(p.sample()); err != nil {
		return fmt.Errorf("%s is not a valid pattern: %w", quote(string(p)), err)
	}
	return nil
}

// allowedEndpoints is a list of patterns.
func allowedEndpoints() valueType[[]EndpointPattern] {
	k := list("a list of patterns like unix:///csi/*", func(s string) error { return EndpointPattern(s).check() },
		pattern(`^(unix:///.|tcp://.)`).with("an endpoint with * in it"), func(all []string) (patterns []EndpointPattern) {
			for _, s := range all {
				patterns = append(patterns, EndpointPattern(s))
			}
			return patterns
		})
	k.schema = k.schema.with("the only endpoints that a CSIDriver object may name")
	return k
}

// sample puts something in the place of each '*'.
func (p EndpointPattern) sample() string {
	s := string(p)
	if port := strings.LastIndexByte(s, ':'); strings.HasPrefix(s, tcpScheme) {
		return strings.ReplaceAll(s[:port], "*", "a") + strings.ReplaceAll(s[port:], "*", "1")
	}
	return strings.ReplaceAll(s, "*", "a")
}

// Allows reports whether an endpoint that ParseEndpoint took is allowed.
func (p EndpointPattern) Allows(e Endpoint) bool {
	rest, below, anything := string(p), "", `[^/]*`
	if !strings.HasPrefix(rest, unixScheme) {
		anything = `[^/.:\[\]]*`
	} else if strings.HasSuffix(rest, "/*") {
		rest, below = strings.TrimSuffix(rest, "*"), `.+`
	}
	form := strings.ReplaceAll(regexp.QuoteMeta(rest), `\*`, anything) + below
	return regexp.MustCompile(`(?s)\A` + form + `\z`).MatchString(string(e))
}
