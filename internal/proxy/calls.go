package proxy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/loglimit"
)

// The limits of a call, in bytes. A page of ListVolumes may be large: some drivers ignore max_entries. Everything else
// ends up in etcd, which takes less than maxAnswer.
const (
	maxRequest, maxAnswer, maxPage = 4 << 20, 2 << 20, 16 << 20
	// The headers of an answer carry the text of an error. A hub takes 128 KiB, and net/http tells it no limit.
	maxHeaders, maxAnswerHeaders = 64 << 10, 120 << 10
	// messageHeader precedes each message of gRPC.
	messageHeader = 5
	// What one side may send ahead of the other, of one call and of all.
	streamWindow, connectionWindow, frameSize = 64 << 10, 1 << 20, 16 << 10
	// maxCalls bounds the calls of one client at once. net/http sends a driver no more either.
	maxCalls = 1000
	// maxProbe bounds an answer to Probe, and the headers of a request to the health port.
	maxProbe = 8 << 10
)

// The time limits for connecting to the socket and for a Probe, as in the hub.
const connectTimeout, probeTimeout = 5 * time.Second, 10 * time.Second

// limits are those of HTTP/2 towards clients and towards the driver.
var limits = http.HTTP2Config{MaxConcurrentStreams: maxCalls, MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connectionWindow,
	MaxReadFrameSize: frameSize, WriteByteTimeout: time.Minute}

// allowed are the calls that attaching and its diagnosis need, with the limits of their answers. A driver has no
// authentication of its own: whatever else a driver can do must not be here.
var allowed = map[string]int64{
	"/csi.v1.Identity/GetPluginInfo":               maxAnswer,
	"/csi.v1.Identity/GetPluginCapabilities":       maxAnswer,
	"/csi.v1.Identity/Probe":                       maxAnswer,
	"/csi.v1.Controller/ControllerGetCapabilities": maxAnswer,
	"/csi.v1.Controller/ControllerPublishVolume":   maxAnswer,
	"/csi.v1.Controller/ControllerUnpublishVolume": maxAnswer,
	"/csi.v1.Controller/ListVolumes":               maxPage,
}

// calls answers the calls of one client.
type calls struct {
	driver   *http.ClientConn
	problem  error                   // why there is no driver
	end      context.CancelCauseFunc // asks the client to go
	logger   klog.Logger
	refusals *loglimit.Limiter
}

func (c *calls) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := c.problem
	limit, ok := allowed[r.RequestURI]
	if ok = ok && r.Method == http.MethodPost; ok && err == nil {
		err = c.forward(w, r, limit)
	}
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	reset, isReset := errors.AsType[streamError](err)
	code, text := codes.Internal, ""
	switch {
	case !ok:
		code, text = codes.PermissionDenied, fmt.Sprintf("csi-attach-proxy does not forward %+.200q: it forwards only the calls that attaching needs", r.RequestURI)
	case err == nil || r.Context().Err() != nil: // answered, or canceled by the client
		return
	case isLarge: // not ResourceExhausted, which means that the node is full
		text = fmt.Sprintf("csi-attach-proxy forwards at most %d bytes for %s", large.Limit-messageHeader, r.RequestURI)
	case isReset:
		code, text = cmp.Or(resets[reset.Code], codes.Internal), err.Error()
	default:
		err = cmp.Or(c.problem, errDriverEnded)
		code, text = codes.Unavailable, err.Error()
		c.end(err) // the client must connect anew to get a driver that is there again
	}
	c.refusals.Info(c.logger, "Answered a call with an error", "code", code, "answer", text)
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(int(code)))
	w.Header().Set(http.TrailerPrefix+"Grpc-Message", url.PathEscape(text))
}

// forward passes a call to the driver, and its answer back.
func (c *calls) forward(w http.ResponseWriter, r *http.Request, limit int64) error {
	answer, err := c.driver.RoundTrip(newCall(r.Context(), r.RequestURI, r.Host, r.Header, http.MaxBytesReader(nil, r.Body, maxRequest+messageHeader)))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	_, err = io.CopyBuffer(w, http.MaxBytesReader(nil, answer.Body, limit+messageHeader), make([]byte, 4<<10))
	for name, values := range answer.Trailer {
		w.Header()[http.TrailerPrefix+name] = values
	}
	return err
}

func newCall(ctx context.Context, method, host string, header http.Header, body io.Reader) *http.Request {
	call := &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: "localhost", Path: method}, Host: host, Header: header,
		Body: io.NopCloser(body), ContentLength: -1}
	return call.WithContext(ctx)
}

// streamError is the error of net/http for a call that was reset, with a code of HTTP/2.
type streamError struct {
	StreamID, Code uint32
	Cause          error
}

func (e streamError) Error() string { return "reset" } // net/http's own text is shown

// resets are what gRPC makes of the codes REFUSED_STREAM and CANCEL. Others are Internal.
var resets = map[uint32]codes.Code{7: codes.Unavailable, 8: codes.Canceled}

// errCannotOpen begins an error that hubs know.
var errCannotOpen, errDriverEnded = errors.New("proxy cannot open"), errors.New("the driver has ended the connection")

// newTransport returns what opens connections to the driver.
func (p *Proxy) newTransport() *http.Transport {
	t := &http.Transport{Protocols: new(http.Protocols), HTTP2: &limits, DisableCompression: true, MaxResponseHeaderBytes: maxAnswerHeaders,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.open(ctx) }}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// open connects to the socket. Its error names the path and has no text of the driver. The log has what to do.
func (p *Proxy) open(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "unix", p.options.Target)
	if err == nil {
		return conn, nil
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno // the rest of the text repeats the path
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.problem.IsDue(err.Error(), time.Now()) {
		var socket syscall.Stat_t
		_ = syscall.Stat(p.options.Target, &socket) // zeros without it
		klog.FromContext(ctx).Info("Cannot open the driver's socket. Check that the driver runs, that the proxy mounts the volume of the socket, that --target is its path, and that runAsUser of the proxy is its owner",
			"target", p.options.Target, "problem", err, "uid", os.Geteuid(), "gid", os.Getegid(), "owner", socket.Uid, "group", socket.Gid, "mode", fmt.Sprintf("%#o", socket.Mode))
	}
	return nil, fmt.Errorf("%w unix://%s: %w", errCannotOpen, p.options.Target, err)
}

// ready is the state of a driver that answers Probe with ready.
const ready = "ok"

// probe calls Probe, and returns ready or why the driver is not. That has no text of the driver, which may hold secrets:
// anyone may ask the health port, and others may read the log.
func (p *Proxy) probe(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	header := http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	answer, err := p.driver.RoundTrip(newCall(ctx, "/csi.v1.Identity/Probe", "", header, bytes.NewReader(make([]byte, messageHeader))))
	switch {
	case errors.Is(err, errCannotOpen):
		return err.Error()
	case err != nil:
		return "the driver does not answer Probe"
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, maxProbe))
	code, err := strconv.ParseUint(answer.Header.Get("Grpc-Status")+answer.Trailer.Get("Grpc-Status"), 10, 32)
	switch {
	case err != nil || code != 0:
		return "the driver's Probe failed: " + codes.Code(code).String()
	// ProbeResponse has a message with a bool, ready, in field 1. Without it the driver is ready.
	case len(body) > messageHeader && body[messageHeader] == 0x0a && !bytes.HasPrefix(body[messageHeader:], []byte{0x0a, 2, 8, 1}):
		return "the driver answers Probe with ready=false"
	}
	return ready
}

// ServeHealth serves plain HTTP on a listener, which it closes, until ctx ends, and probes the driver meanwhile: a slow
// Probe delays no request of the kubelet, and nobody can flood the driver. /readyz is 200 while the driver answers Probe
// with ready, as the hub demands, and 503 otherwise. /healthz is 200. The kubelet asks: it cannot do mutual TLS.
func (p *Proxy) ServeHealth(ctx context.Context, listener net.Listener) {
	var last atomic.Value
	last.Store("the first Probe of the driver has not ended")
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if last.Load() != ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, last.Load())
	})
	server := &http.Server{Handler: mux, ReadTimeout: p.healthTimeout, WriteTimeout: p.healthTimeout, MaxHeaderBytes: maxProbe, ConnState: p.health.Follow}
	defer server.Close()
	go func() { _ = server.Serve(listener) }()
	for ctx.Err() == nil {
		if state := p.probe(ctx); last.Swap(state) != state {
			klog.FromContext(ctx).Info("The driver's readiness has changed", "state", state)
		}
		select {
		case <-ctx.Done():
		case <-time.After(p.probeInterval):
		}
	}
}
