package hubclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// requestTimeout bounds one request to a replica, with the connecting.
const requestTimeout = 10 * time.Second

// TransportOptions say how a replica is spoken to.
type TransportOptions struct {
	TokenFile  string // with the token to show; empty: none
	CAFile     string // authorities of its certificate; empty: those of the system
	ServerName string // that its certificate has; empty: the host of the URL
	// Insecure does not check the certificate. It does not go with a token, which
	// would be shown to anybody.
	Insecure bool
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// client returns one that connects by dial, nil for the network.
func (o TransportOptions) client(dial dialFunc, serverName string) (*http.Client, error) {
	if o.Insecure && o.TokenFile != "" {
		return nil, errors.New("a token is not shown to a server whose certificate is not checked: give --ca-file instead of --insecure-skip-tls-verify")
	}
	if o.ServerName != "" {
		serverName = o.ServerName
	}
	transport := &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName, InsecureSkipVerify: o.Insecure},
		// Proxies of the environment are for what is out in the world.
		Proxy: nil,
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the hub's certificate: %w", err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in it", o.CAFile)
		}
	}
	client := &http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a hub never redirects
	}}
	if o.TokenFile != "" {
		token, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read the token for the hub: %w", err)
		}
		client.Transport = bearer{token: strings.TrimSpace(string(token)), next: transport}
	}
	return client, nil
}

// bearer shows a token, over TLS only.
type bearer struct {
	token string
	next  *http.Transport
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, errors.New("a token is shown over TLS only, and the address is http://")
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// CloseIdleConnections is found by http.Client.
func (b bearer) CloseIdleConnections() { b.next.CloseIdleConnections() }
