package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// probe is one request whose answer says whether a component is ready.
type probe struct {
	url      string
	token    string
	caFile   string
	contains []string // what the answer must say beside 200
}

func apiServerProbes(s *state) []probe {
	return []probe{
		{url: s.serverURL() + "/readyz", token: s.Token, caFile: s.path("ca.crt")},
		// Made by the API server itself shortly after it is ready; nothing
		// can be created in it before.
		{url: s.serverURL() + "/api/v1/namespaces/default", token: s.Token, caFile: s.path("ca.crt")},
	}
}

// controllerManagerProbe wants every controller named: the server answers "ok"
// before the first of them has started.
func controllerManagerProbe(s *state) probe {
	url := fmt.Sprintf("https://127.0.0.1:%d/healthz?verbose", s.Ports.ControllerManager)
	return probe{url: url, token: s.Token, caFile: s.path("ca.crt"), contains: controllers}
}

// probeInterval is how often a component that starts is asked.
const probeInterval = 50 * time.Millisecond

// waitReady blocks until every probe is passed, in order, or the component (or
// one it needs) has died, or the timeout has passed.
func waitReady(ctx context.Context, c *child, died <-chan error, timeout time.Duration, probes ...probe) error {
	expired := time.NewTimer(timeout)
	defer expired.Stop()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for _, p := range probes {
		client, err := p.client()
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		for {
			last := p.ask(ctx, client)
			if last == nil {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-died:
				return err
			case <-expired.C:
				return fmt.Errorf("%s is not ready after %v: %w\n%s", c.role, timeout, last, c.lastLines())
			case <-ticker.C:
			}
		}
	}
	return nil
}

func (p probe) client() (*http.Client, error) {
	ca, err := os.ReadFile(p.caFile)
	if err != nil {
		return nil, fmt.Errorf("read CA certificate: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("read CA certificate: " + p.caFile + " holds none")
	}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}, nil
}

// ask returns nil when the component is ready and else why it is not.
func (p probe) ask(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s: %s", p.url, resp.Status, strings.TrimSpace(string(body)))
	}
	for _, want := range p.contains {
		if !strings.Contains(string(body), want) {
			return fmt.Errorf("%s does not name %s yet", p.url, want)
		}
	}
	return nil
}
