package fakecsi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// ControlClient reads the books and sets the knobs of a Backend in another
// process through its Control.
type ControlClient struct {
	endpoint string
	base     string
	http     *http.Client
}

// NewControlClient makes a client for the Control at unix:///path,
// tcp://host:port or host:port. It connects with the first call: the other
// process may start later.
func NewControlClient(endpoint string) (*ControlClient, error) {
	network, address, err := splitEndpoint(endpoint)
	if err != nil {
		return nil, fmt.Errorf("make control client: %w", err)
	}
	base := "http://" + address
	if network == "unix" {
		base = "http://unix"
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	return &ControlClient{endpoint: endpoint, base: base, http: &http.Client{Transport: transport}}, nil
}

// Close closes idle connections.
func (c *ControlClient) Close() { c.http.CloseIdleConnections() }

// Books returns a snapshot of the books, with all calls.
func (c *ControlClient) Books(ctx context.Context) (Books, error) {
	return c.books(ctx, "")
}

// Set applies knobs: all of them or, with an error in them, none.
func (c *ControlClient) Set(ctx context.Context, k Knobs) error {
	body, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("set knobs: %w", err)
	}
	if _, err := c.do(ctx, http.MethodPost, "/knobs", body); err != nil {
		return fmt.Errorf("set knobs: %w", err)
	}
	return nil
}

// Wait blocks until done is true of the books. It asks at once and after changes,
// with Books that have no Calls, which may be many. An error of the connection
// ends it.
func (c *ControlClient) Wait(ctx context.Context, done func(Books) bool) error {
	query := "?calls=false"
	for {
		books, err := c.books(ctx, query)
		if err != nil {
			return err
		}
		if done(books) {
			return nil
		}
		query = fmt.Sprintf("?calls=false&after=%d", books.Version)
	}
}

func (c *ControlClient) books(ctx context.Context, query string) (Books, error) {
	var books Books
	data, err := c.do(ctx, http.MethodGet, "/books"+query, nil)
	if err == nil {
		err = json.Unmarshal(data, &books)
	}
	if err != nil {
		return Books{}, fmt.Errorf("read books: %w", err)
	}
	return books, nil
}

func (c *ControlClient) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", c.endpoint, err)
	}
	data, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read from %s: %w", c.endpoint, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s answers %s: %s", c.endpoint, resp.Status, strings.TrimSpace(string(data)))
	}
	return data, nil
}
