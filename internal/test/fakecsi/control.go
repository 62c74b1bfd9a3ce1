package fakecsi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// maxKnobs bounds the JSON of one Knobs, in bytes.
const maxKnobs = 16 << 20

// longPoll bounds the wait of /books?after= for a change.
const longPoll = 20 * time.Second

// Control is the HTTP API to a Backend in another process. It has no
// authentication: serve it on a unix socket or a loopback address.
//
//	GET /books               the Books as JSON
//	GET /books?calls=false   without the list of ended calls
//	GET /books?after=N       waits, for 20 seconds at most, until their version
//	                         differs from N
//	POST /knobs              applies Knobs as JSON: all of them or, with an error, none;
//	                         answers with a line for each change
func Control(b *Backend) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /books", func(w http.ResponseWriter, r *http.Request) {
		if err := waitForVersion(b, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		books := b.Books()
		if r.URL.Query().Get("calls") == "false" {
			books.Calls = nil
		}
		w.Header().Set("Content-Type", "application/json")
		// An error means that the client has hung up.
		_ = json.NewEncoder(w).Encode(books)
	})
	mux.HandleFunc("POST /knobs", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxKnobs))
		answer := ""
		if err == nil {
			answer, err = b.SetJSON(data)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		// An error means that the client has hung up.
		_, _ = fmt.Fprintln(w, answer)
	})
	return mux
}

// waitForVersion waits as the request's parameter after says.
func waitForVersion(b *Backend, r *http.Request) error {
	text := r.URL.Query().Get("after")
	if text == "" {
		return nil
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("parameter after: %w", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), longPoll)
	defer cancel()
	// A lower version counts too: N may be from before a restart.
	b.waitVersion(ctx, after)
	return nil
}

// ServeControl serves a Control, or another handler, on the listener until ctx ends. Then it closes the
// listener and cuts requests in flight.
func ServeControl(ctx context.Context, lis net.Listener, handler http.Handler) error {
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve control on %s: %w", lis.Addr(), err)
	case <-ctx.Done():
	}
	err := srv.Close()
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop control on %s: %w", lis.Addr(), err)
	}
	return nil
}
