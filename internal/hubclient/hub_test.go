package hubclient

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestWhatIsNoHubIsSaidToBeNone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/moved/api/v1/overview":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case r.URL.Path == "/there/api/v1/overview" || r.URL.Path == "/there/api/v1/drivers":
			fmt.Fprint(w, "{}")
		case strings.HasPrefix(r.URL.Path, "/page/"):
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>hello</html>")
		case strings.HasPrefix(r.URL.Path, "/error/"):
			http.Error(w, `{"error": "no such thing"}`, http.StatusBadRequest)
		default:
			fmt.Fprint(w, "<html>hello</html>")
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{"": "does not answer as a csi-attach-hub", "/moved": "302 Found", "/there/": "",
		"/page": "502 Bad Gateway", "/error": "400 Bad Request: no such thing"} {
		h, err := Find(t.Context(), Options{Server: server.URL + path})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if got := h.View(t.Context()).Replicas[0].Error; (got == "") != (want == "") || !strings.Contains(got, want) || strings.Contains(got, "<html>") {
			t.Errorf("%q: the error is %q, want %q in it", path, got, want)
		}
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, server := range []string{"127.0.0.1:8080", "localhost", "ftp://a", "http://", "http://u:p@a", "http://a?b", "http://a#b", "http://a b"} {
		if _, err := Find(t.Context(), Options{Server: server}); err == nil || !strings.Contains(err.Error(), "http://host:port") {
			t.Errorf("%q: the error is %v, want one that says what to write", server, err)
		}
	}
}

// waitingSource is a replica where a VolumeAttachment waits.
type waitingSource struct {
	source
	attachment status.Attachment
}

func (s waitingSource) Attachments(status.AttachmentFilter) []status.Attachment {
	return []status.Attachment{s.attachment}
}

func TestAVolumeAttachmentComesWithWhatItWaitsFor(t *testing.T) {
	want := status.Attachment{Name: "csi-1", Driver: "d", State: status.Waiting, Health: status.Health{State: status.Fine}}
	want.Waiting = status.Wait{Kind: status.WaitForDetach, Node: "node-7", VolumeAttachment: "csi-7"}
	h := hubOf(t, addressOf(t, waitingSource{attachment: want}))
	var got []status.Attachment
	err := h.Volumes(t.Context(), h.View(t.Context()), status.AttachmentFilter{Name: "csi-1"}, func(a status.Attachment) { got = append(got, a) })
	if err != nil || !reflect.DeepEqual(got, []status.Attachment{want}) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// The other end of the pipe may be closed before the request is written.
func TestARequestThatCannotBeWrittenSaysWhyThePodEndedTheConnection(t *testing.T) {
	near, far := net.Pipe()
	c, refused := &tunnelled{Conn: near}, errors.New("connection refused")
	c.problem.Store(&refused)
	far.Close()
	if _, err := c.Write([]byte("GET")); err != refused {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != refused {
		t.Error(err)
	}
}
