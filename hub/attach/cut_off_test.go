package attach

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// cutOff lets the connection end in the middle of the answers to writes of a status.
type cutOff struct {
	next http.RoundTripper
	on   *atomic.Bool
}

func (c cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err == nil && c.on.Load() && strings.HasSuffix(r.URL.Path, "/status") {
		response.Body.Close()
		response.Body = io.NopCloser(reset{})
	}
	return response, err
}

type reset struct{}

func (reset) Read([]byte) (int, error) {
	return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// An API server that ends in the middle of an answer has refused nothing: the driver was
// asked again for a volume that was attached, and the user was told of a read error.
func TestAnswerThatIsCutOffSaysNothingOfTheVolume(t *testing.T) {
	s, p := newScene(t), &Progress{}
	var on atomic.Bool
	config := testbed.Shared(t).RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cutOff{next, &on} })
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s.Kube = kube
	on.Store(true)
	if err := s.Attach(t.Context(), s.plan(attaching), p); err == nil || !NotReady(err) {
		t.Errorf("%v: want an error that passes by itself", err)
	}
	on.Store(false)
	s.markUnattached()
	if err := s.Attach(t.Context(), s.plan(attaching), p); err != nil {
		t.Error(err)
	}
	if calls := s.calls(); calls != 1 {
		t.Errorf("%d calls of the driver, want one", calls)
	}
}
