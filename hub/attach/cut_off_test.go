package attach

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// cutOff lets the connection end in the middle of the answers to writes of a status.
type cutOff struct {
	next http.RoundTripper
	err  *atomic.Pointer[error] // with which it ends; nil: it does not
}

func (c cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if ends := c.err.Load(); err == nil && ends != nil && strings.HasSuffix(r.URL.Path, "/status") {
		response.Body.Close()
		response.Body = io.NopCloser(iotest.ErrReader(*ends))
	}
	return response, err
}

// An API server that ends in the middle of an answer has refused nothing: the driver was
// asked again for a volume that was attached, and the user was told of a read error.
func TestAnswerThatIsCutOffSaysNothingOfTheVolume(t *testing.T) {
	for name, ends := range map[string]error{
		"connection reset": &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"stream reset":     http2.StreamError{StreamID: 1, Code: http2.ErrCodeInternal},
		"told to go away":  errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug=""`),
		"protocol error":   errors.New("connection error: PROTOCOL_ERROR"),
		"connection lost":  errors.New("http2: client connection lost"),
		"end of file":      io.ErrUnexpectedEOF,
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			var err atomic.Pointer[error]
			config := testbed.Shared(t).RESTConfig()
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cutOff{next, &err} })
			kube, failed := kubernetes.NewForConfig(config)
			if failed != nil {
				t.Fatal(failed)
			}
			s.Kube = kube
			plan := s.plan(attaching)
			if err := s.AddFinalizers(t.Context(), plan); err != nil {
				t.Fatal(err)
			}
			err.Store(&ends)
			if err := s.MarkAttached(t.Context(), s.attachment(), plan.Target, nil); err == nil || !NotReady(err) || Rejected(err) {
				t.Errorf("%v: want an error that passes by itself", err)
			}
			err.Store(nil)
			s.markUnattached()
			if err := s.MarkAttached(t.Context(), s.attachment(), s.plan(attaching).Target, nil); err != nil {
				t.Error(err)
			}
		})
	}
}
