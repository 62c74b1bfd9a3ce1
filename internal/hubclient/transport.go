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

// requestTimeout bounds one request to a replica, including the connecting.
const requestTimeout = 10 * time.Second

// TransportOptions say how to connect to a replica.
type TransportOptions struct {
	TokenFile  string // file with a bearer token; empty: no token
	CAFile     string // certificate authorities in PEM; empty: those of the system
	ServerName string // the name in the certificate; empty: the host of the URL
	// Insecure skips the verification of the certificate. It excludes TokenFile: any server
	// could take the token.
	Insecure bool
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// client returns an HTTP client that connects by dial, or over the network if dial is nil.
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
		// The proxies of the environment are for servers outside of the cluster.
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

// bearer sends a token, over TLS only.
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

// CloseIdleConnections is called by http.Client.
func (b bearer) CloseIdleConnections() { b.next.CloseIdleConnections() }
