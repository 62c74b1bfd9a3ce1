// Package streams keeps a client of the Kubernetes API within one HTTP/2 connection.
package streams

import (
	"io"
	"net/http"
	"sync"
)

// Most is how many requests of a bounded client are in flight at once. kube-apiserver allows 100 streams in a
// connection, and watches take some of them. net/http dials once for each request that finds no free stream: 1,000
// requests at once made 1,300 connections, and the API server spent 40 % more CPU time on them.
const Most = 80

// Bound returns a RoundTripper that has at most Most requests in flight in next. A request that waits for its turn ends
// with its context. Watches are not bounded: they last, and those of leases can be as many as drivers. The caller must
// close the body of each answer.
func Bound(next http.RoundTripper) http.RoundTripper {
	return &bounded{next: next, turns: make(chan struct{}, Most)}
}

type bounded struct {
	next  http.RoundTripper
	turns chan struct{} // has an element for each request whose turn it is
}

func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.Query().Has("watch") {
		return b.next.RoundTrip(r)
	}
	select {
	case b.turns <- struct{}{}:
	case <-r.Context().Done():
		if r.Body != nil {
			r.Body.Close() // as a RoundTripper must
		}
		return nil, r.Context().Err()
	}
	end := sync.OnceFunc(func() { <-b.turns })
	answer, err := b.next.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	answer.Body = &body{answer.Body, end}
	return answer, nil
}

// body ends the turn of a request when the client has its answer: until then it has a stream.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
