package tracing

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
)

// defaultPort is the port of OTLP over gRPC (OpenTelemetry Protocol, "OTLP/gRPC Default Port").
const defaultPort = "4317"

// Endpoint is the address of a collector that takes OTLP over gRPC. It is zero for no collector.
type Endpoint struct {
	Address string // host:port
	Scheme  string // http for plaintext, https for TLS, "" for TLS unless OTEL_EXPORTER_OTLP_INSECURE is true
}

// ParseEndpoint reads the forms of an endpoint that OpenTelemetry has for OTLP over gRPC: http://HOST:PORT,
// https://HOST:PORT and HOST:PORT. The port of a URL may be missing. For "" it returns the zero Endpoint.
func ParseEndpoint(text string) (Endpoint, error) {
	if text == "" {
		return Endpoint{}, nil
	}
	wrong := fmt.Errorf("%q is not the address of a collector: write http://HOST:%s for plaintext, https://HOST:%[2]s for TLS, or HOST:%[2]s", text, defaultPort)
	e := Endpoint{Address: text}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return Endpoint{}, wrong
		}
		e = Endpoint{Address: u.Host, Scheme: u.Scheme}
		if u.Port() == "" {
			e.Address = net.JoinHostPort(u.Hostname(), defaultPort)
		}
	}
	host, port, err := net.SplitHostPort(e.Address)
	if err != nil || host == "" || strings.ContainsAny(host, "/ ") {
		return Endpoint{}, wrong
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return Endpoint{}, wrong
	}
	return e, nil
}

func (e Endpoint) option() otlptracegrpc.Option {
	if e.Scheme == "" {
		return otlptracegrpc.WithEndpoint(e.Address)
	}
	return otlptracegrpc.WithEndpointURL(e.Scheme + "://" + e.Address)
}
