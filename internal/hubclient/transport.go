package hubclient

import (
	"context"
	"net"
	"net/http"
	"time"
)

// requestTimeout bounds one request to a replica, including the connecting.
const requestTimeout = 10 * time.Second

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newClient returns an HTTP client that connects by dial, or over the network if dial is nil. It ignores the proxies of the
// environment, which are for servers outside of the cluster.
func newClient(dial dialFunc) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a hub never redirects
	}}
}
