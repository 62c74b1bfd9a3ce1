package tlsproxy

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
)

// unavailableTimeout bounds the connection of a client that gets no other answer. A client that
// stays would not notice when the driver comes back.
const unavailableTimeout = 10 * time.Second

// answerUnavailable answers all calls of a client with Unavailable and a text: a client that was
// cut off would not know why. It blocks until the client goes, stay ends or the time is over.
func answerUnavailable(stay context.Context, client net.Conn, text string) {
	ctx, cancel := context.WithTimeout(stay, unavailableTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(int(codes.Unavailable)))
		h.Set("Grpc-Message", url.PathEscape(text))
	}
	//lint:ignore SA1019 http.Server takes listeners only, and this is one connection
	new(http2.Server).ServeConn(client, &http2.ServeConnOpts{Handler: http.HandlerFunc(answer),
		BaseConfig: &http.Server{MaxHeaderBytes: maxHeaders, ErrorLog: log.New(io.Discard, "", 0)}})
}
